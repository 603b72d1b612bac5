"""IFCA: each client picks the model with the lowest loss on its data and trains it, in one exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from florets.strategies.base.round import Plan, Round
from florets.strategies.core.noised_groups import PARTS
from florets.strategies.settings import Experiment, PrivacyKind, Releases, RunKeys
from florets.strategies.shared.messages import TRAIN_FOLDS
from florets.strategies.shared.restarts import Restarted, Restarts, RestartState
from florets.task.keys import setting
from florets.task.wire import kinds
from florets.task.wire.leaving import CHOICES, LOSS_VECTORS, MODELS
from florets.task.wire.records import filled
from florets.task.wire.replies import Update

COMPARED = 5
"""Rounds after the first in which, with central noise, models are compared with the mean client's losses."""


@dataclass(frozen=True)
class IFCASettings(Restarted):
    """Each client picks the model with the lowest loss on its data, and trains it."""

    choose_by: Literal["loss", "accuracy"] = setting(
        "loss", "by what clients choose their model: the lowest loss, or the highest accuracy"
    )

    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update"),
        "loss_data": ("train", "held_out"),
        "personal": ("none", "intercept", "slopes"),
        "choose_k": ("folds",),
    }

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a choice by the accuracy of a task without classes."""
        problems = super().problems(run)
        if self.choose_by == "accuracy" and run.task.loss != "cross_entropy":
            problems.append(f"strategy.choose_by=accuracy: task.loss={run.task.loss} has no classes; leave it out.")
        return problems

    def uncovered(self, run: RunKeys) -> list[str]:
        """Refuse a choice by accuracies, which have no noise."""
        by = f"strategy.choose_by=accuracy: not covered by privacy.kind={run.privacy.kind}; leave it out."
        return super().uncovered(run) + [by] * (self.choose_by == "accuracy")

    def releases(self, kind: PrivacyKind) -> Releases | None:
        """Name updates, whose sums cover a choice that decides on no other's group; or losses too."""
        central = Releases(compared=COMPARED, start=PARTS, hidden=True, handlers=(TRAIN_FOLDS,))
        return central if kind == "central" else Releases(each=1)


@dataclass
class IFCAState(RestartState):
    """IFCA remembers nothing but its start, and never stops clustering."""

    phase: str = "clustering"


class IFCA(Restarts[IFCASettings, IFCAState]):
    """Iterative federated clustering: the client's choice is the clustering.

    With `first_round=evaluate` clients choose from the first round on, as in the paper. With "random" in round 1 each
    client trains a random model, as CLoVE's experiments do. With "update" it starts from groups of updates of one
    model, which also find K. `restarts` begins several times and goes on with the best start.

    Source: Ghosh et al. 2020, Alg. 1 (l. 7 and 8: the choice; option I gradients, option II models).
    Deviation: clients weigh in their model's mean by their examples (`weighting=examples`). Option II takes the plain
    mean (`uniform`, the same for clients of equal size); option I divides a model's sum of gradients by all clients
    (`all_participants`), with which K groups take about 1/K of the step: on CFL-GP's Table 9 with 20 clients 75.2 ±
    4.6 against 85.4 ± 2.9 % (3 seeds). With a `method` a round has one exchange more, in which clients choose.
    Deviation: round 1 is `random` by default, as CLoVE's is. With central noise it starts from noised groups of
    folds, and the next five rounds compare each model's losses with the mean client's, since clients would all choose
    the model with the least noise: ARI 0.66 against 0.62 at epsilon 8, 0.55 against 0.26 at 4 (turned digits, 100
    clients, 5 seeds).
    """

    leaving = (MODELS, CHOICES, LOSS_VECTORS)
    Settings = IFCASettings
    State = IFCAState

    def all_leaving(self) -> frozenset[str]:
        """Leave choices out where clients that train by a method of their own send losses alone."""
        names = super().all_leaving()
        return names - {CHOICES} if self.personal is not None and self.personal.trains else names

    def plan_round(self, context: Round) -> Plan[Update]:
        """Send all models and let each participant choose (l. 6 to 8)."""
        if self.settings.choose_by == "accuracy":
            context = replace(context, config=filled(context.config.copy(), {kinds.BY_ERRORS: True}))
        if self._compares(context) or (self.personal is not None and self.personal.trains):
            return context.train_assigned(self._choices(context))
        return context.train_selected()

    def after_training(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Keep the losses by which clients chose, for the results."""
        chosen = [(key, update.losses) for key, update in updates if update.losses is not None]
        if chosen:
            self.context.note_vectors("losses", [key for key, _ in chosen], [losses for _, losses in chosen])

    def _choices(self, context: Round) -> dict[str, int]:
        """Ask for the participants' losses, and return the model that each would choose.

        Clients that train more than this model cannot choose in the same exchange: each method has messages of its
        own.
        """
        with context.meter.part("losses"):
            replies = context.ask_losses(context.participants, context.models)
        context.require(replies, "loss vector")
        context.note_vectors("losses", [key for key, _ in replies.ok], [reply.losses for _, reply in replies.ok])
        if self.privacy is not None and self._compares(context):
            keys, losses = [key for key, _ in replies.ok], np.stack([reply.losses for _, reply in replies.ok])
            return dict(zip(keys, self.privacy.compared(keys, losses, context.models.count)[0].tolist(), strict=True))
        return {key: int(np.argmin(reply.losses)) for key, reply in replies.ok}

    def _compares(self, context: Round) -> bool:
        """Return whether clients choose by their losses compared with the mean client's, so that no model is left."""
        return self.privacy is not None and not self.privacy.is_local and 1 < context.server_round <= 1 + COMPARED
