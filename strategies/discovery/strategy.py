"""Discovery: find the groups in round 1 by updates on folds of the clients' data, then FedAvg in each group."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import ADVICE, STABLE_FROM, Detail, State
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.strategies.core.placement import Centres
from florets.strategies.settings import SharedLayers
from florets.strategies.shared.first_rounds import group_models
from florets.strategies.shared.fold_round import Evidence, FoldRound, Found, no_group_fits
from florets.task.keys import setting
from florets.task.randomness import Purpose
from florets.task.wire.replies import Update

STILL = 0.05
"""Share of the clients' own movement below which what two rounds have in common counts as none."""


def common_move(changes: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the mean of the clients' updates, in units of their own length.

    Parameters
    ----------
    changes : (M, R) float
        What each client's training changed, at least one client.
    weights : (M,) float
        As they are averaged; not all zero.

    Returns
    -------
    (R,) float64
        The mean over the root mean square of their lengths: of length 1 where all move alike, near 0 where each goes
        a way of its own; zeros where nobody moves.
    """
    shares = weights / weights.sum()
    length = np.sqrt(shares @ (changes**2).sum(axis=1))
    mean = shares @ changes
    unit: FloatArray = mean / length if length > 0.0 else np.zeros_like(mean)
    return unit


def moves_on(before: FloatArray, now: FloatArray) -> bool:
    """Say whether the mean update of this round goes on where that of the round before went.

    Both are from `common_move`. As long as the model is on its way to what all clients share, the mean updates of two
    rounds point the same way. Once it is there, what is left of them is each client's own, which cancels in the mean,
    and chance, which has another direction in each round: their inner product is then about zero, or below, as steps
    too long go to and fro. The size of steps plays no part.

    Source: Pflug, Non-asymptotic confidence bounds for stochastic approximation algorithms with constant step size,
    1990, whose sign of successive gradients' inner product this is.
    Deviation: a threshold slightly above zero, in units of the clients' own updates, because the full gradients of
    many clients have little chance in them: their mean shrinks towards zero and stays on one side of it.
    """
    return bool(before @ now >= STILL)


@dataclass(frozen=True)
class DiscoverySettings(SharedLayers):
    """Detects in round 1 whether there are groups, how many and which; then each group trains its own model."""

    fold_upload: Literal["projection", "signs", "full"] = setting(
        "projection", "how clients send what they learned on a fold: projected, as signs (128 bytes), or all of it"
    )
    fold_width: int | None = setting(
        None,
        "entries of what is sent of a fold; null: a fifth of the parameters, 256 to 1024 (signs: 1024)",
        least=8,
    )
    level: float = setting(0.005, "level of the test: how often identical clients may be divided", above=0, below=1)
    tolerance: float | None = setting(
        None,
        "a smaller number of groups is taken if it costs less than this share of the score; null: 0.01, and with at "
        "most six clients 0.05",
        least=0,
        below=1,
    )
    clients_needed: int | None = setting(
        None,
        "clients that must have taken part before the search for groups, if rounds sample the clients; null: five "
        "for each of k groups, or 40 (k=auto), but no more than three of four clients",
        least=2,
    )
    first_look: int | None = setting(
        None,
        "round of the search for groups, with the model trained until then; null: 1, and in a regression as soon as "
        "the model has learned what all clients share",
        least=1,
    )
    second_look: int = setting(
        0,
        "round of a second search if the first one detected no groups (k=auto); 0: never",
        least=0,
        note="0 means never",
    )
    place_one_class: bool = setting(
        False,
        "clients whose training records are all of one class take no part in the search for groups, and are placed "
        "afterwards: they differ from all others under any rule",
    )
    rediscover_every: int = setting(
        0,
        "rounds after which the search is repeated among all clients; 0: never",
        least=0,
        note="0 means never",
    )

    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True


_PER_GROUP, _UNKNOWN = 5, 40
"""Clients that a decision takes: for each group, and where nobody says how many there are."""
_MOST_NEEDED = 0.75
"""Of all clients with enough samples for folds: the last ones to be drawn may take many rounds."""
_REGRESSION = ("squared_error", "half_squared_error")
"""Losses whose updates all clients share at first, whatever group they are of: those of a model that has to find its
scale and the inputs that count. A classifier's groups show in what it learns first."""
_LATEST = 40
"""Round in which a regression's groups are looked for even if the one model still moves on."""
_SETTLED = 5
"""Rounds that the groups' models train before clients with few samples are placed by their losses."""
_PATIENCE = 2
"""Rounds in which the rows of clients whose replies were lost are waited for, where all take part."""


@dataclass
class DiscoveryState(State):
    """What discovery remembers.

    Attributes
    ----------
    folds
        The common model and what clients learned of it on their folds; after the decision without those rows. None
        before round 1.
    decided
        Groups have been looked for.
    centres
        By which later clients are placed; None where there is one model.
    unfit
        Clients that no group fits.
    unsure
        Clients that were placed by one row of few samples, and the round from which on they are placed anew.
    looks
        Rounds in which groups were looked for among the rows at hand.
    move
        Before groups are looked for, the mean of the last round's updates; see `moves_on`.
    moves_on
        It goes where that of the round before went.
    details
        What the round tells in its report.
    """

    phase: str = "discovery"
    folds: FoldRound | None = None
    decided: bool = False
    centres: Centres | None = None
    unfit: set[str] = field(default_factory=set)
    unsure: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    move: FloatArray | None = None
    moves_on: bool = True
    details: dict[str, Detail] = field(default_factory=dict)


class Discovery(Strategy[DiscoverySettings, DiscoveryState]):
    """Groups found by cross-validation over folds of each client's data, and FedAvg within them.

    In round 1 every client trains the one common model twice: on all its data, which is averaged, and on disjoint
    folds, of which it sends compressed changes. Groups whose centres predict the held-out folds are groups; the mean
    of their members' updates is their first model, so that no second download is needed. Where there are none, or
    every client differs from every other, one model is trained as in FedAvg.

    Clients that come later train the kept first model and join the group whose centre is nearest, or are told that
    none fits. Where a round is a sample of the clients, the common model is kept and groups are looked for once
    enough of them have taken part; until then one model is trained.

    Where the first model is far from every group's, what its updates share can hide what they do not. The common
    model of a regression is therefore the one that FedAvg has trained until the mean updates of two rounds have
    nothing in common, and with `first_look` the one of a given round; with `second_look` a trained one takes the
    first one's place where no groups were found.

    Source: `strategies.core.folds` has the method and its theory.
    """

    Settings = DiscoverySettings
    State = DiscoveryState

    def details(self) -> dict[str, Detail]:
        """Return the evidence, in a round that looked for groups."""
        return self.state.details

    def frozen_clusters(self) -> Frozen | None:
        """Return the groups, and the model by which they were found."""
        state = self.state
        return None if state.folds is None or state.centres is None else state.folds.frozen(state.centres)

    def plan(self, context: Round) -> Plan[Update]:
        """Look for groups while there are none; then let every participant train its group's model."""
        state, models = self.state, context.models
        state.details = {}
        if self._is_second_look(context.server_round):
            # What all clients share has been learned by now: of what is left, more tells them apart.
            state.folds, state.decided, state.looks = None, False, 0
        if self._waits(context.server_round):
            state.phase = "training"
            if self.settings.first_look is None and context.server_round == 1:
                self._tell(Evidence("open"))
            self.assignment.update({client.key: 0 for client in context.participants})
            return context.train_assigned(dict(self.assignment))
        if not state.decided:
            state.phase = "discovery"
            return self._look(context)
        if self._is_due(context.server_round):
            models = self._look_again(context)
            context = replace(context, models=models)
        else:
            state.phase = "training" if state.centres is None else "stable"
        self._place_newcomers(context)
        self._place_anew(context)
        context = self._with_somebody(context)
        plan = context.train_assigned(dict(self.assignment))
        return replace(plan, models=models, participants=context.participants)

    def after_training(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Note whether the one model still moves on, where groups wait for that."""
        if self.settings.first_look is not None or not self._waits(self.context.server_round):
            return
        context, state = self.context, self.state
        start = context.models.bank[0] if isinstance(context.averaging, ModelAveraging) else 0.0
        trained = context.models.layout.trained
        weights = np.array([update.num_examples for _, update in updates], dtype=np.float64)
        move = common_move(np.stack([(update.vector - start)[trained] for _, update in updates]), weights)
        state.moves_on = state.move is None or moves_on(state.move, move)
        state.move = move if state.moves_on else None

    def _waits(self, server_round: int) -> bool:
        """Return whether groups are not looked for yet, but one model is trained."""
        if self.settings.first_look is not None:
            return server_round < self.settings.first_look
        return self.loss in _REGRESSION and self.state.moves_on and server_round < _LATEST

    def _look(self, context: Round) -> Plan[Update]:
        """Plan a round in which participants send what they learn on their folds, and decide when enough have."""
        if self.state.folds is None:
            trained = self.loss in _REGRESSION and context.server_round > 1
            given = self.settings
            self.state.folds = FoldRound.begin(
                context, given.fold_upload, given.fold_width, trained, given.place_one_class, self.k == "auto"
            )
        folds = self.state.folds
        requests, read = folds.train(context)

        def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            folds.take(updates)
            self.state.looks += 1
            needed = self._needed(folds, context)
            if len(folds.rows) < needed:
                self._tell(Evidence("open", seen=len(folds.rows), needed=needed))
                return group_models(context, updates, self.assignment, 1)
            with context.meter.part("discover"):
                found = self._decide(folds, context)
            self.assignment.clear()
            return group_models(context, updates, self._settle(found), found.count)

        return Plan(requests, read, combine)

    def _needed(self, folds: FoldRound, context: Round) -> int:
        """Return how many clients' rows it takes to decide; those with too few samples for folds send none."""
        able = sum(folds.has_folds(client) for client in context.online)
        most = max(2, math.ceil(_MOST_NEEDED * able))
        if len(context.participants) == len(context.online):
            # Nobody else is there to wait for; whose reply was lost is asked again, for some rounds.
            return min(able, most if self.state.looks <= _PATIENCE else 2)
        if self.settings.clients_needed is not None:
            return self.settings.clients_needed
        wanted = _PER_GROUP * self.k if isinstance(self.k, int) else _UNKNOWN
        return min(wanted, most)

    def _decide(self, folds: FoldRound, context: Round) -> Found:
        k = self.k if isinstance(self.k, int) else None
        return folds.decide(k, context, self.settings.level, self.settings.tolerance)

    def _settle(self, found: Found) -> dict[str, int]:
        """Take over what was found; return the clients' groups."""
        state = self.state
        assert state.folds is not None
        state.unsure = {}
        if found.centres is not None:
            self._note_unsure(state.folds.small)
        state.folds, state.decided, state.centres = state.folds.emptied(), True, found.centres
        state.unfit = set()
        self.assignment.update(found.assignment)
        self._tell(found.evidence)
        return found.assignment

    def _tell(self, evidence: Evidence) -> None:
        self.state.details = evidence.details()
        if evidence.verdict == "groups":
            self.state.details[STABLE_FROM] = self.context.server_round + 1

    def _is_second_look(self, server_round: int) -> bool:
        """Return whether the one model that there is takes the place of the first common one."""
        found_none = self.state.decided and self.state.centres is None
        return found_none and self.k == "auto" and server_round == self.settings.second_look

    def _is_due(self, server_round: int) -> bool:
        every = self.settings.rediscover_every
        return every > 0 and (server_round - 1) % every == 0

    def _look_again(self, context: Round) -> Models:
        """Look for groups among all clients that are there; return each group's mean of its members' models.

        The common model is still the first one: what clients learn of it tells their data apart as it did then, and
        later clients are placed by it.
        """
        state, models = self.state, context.models
        assert state.folds is not None
        state.phase = "discovery"
        with context.meter.part("describe"):
            replies = state.folds.ask_again(context)
            context.require(replies, "rows of folds")
        with context.meter.part("discover"):
            state.folds.take(replies.ok)
            found = self._decide(state.folds, context)
        earlier = dict(self.assignment)
        self.assignment.clear()
        self._settle(found)
        bank = np.stack(
            [
                _mean_model(
                    models.bank,
                    [earlier[key] for key, own in found.assignment.items() if own == group and key in earlier],
                )
                for group in range(found.count)
            ]
        )
        return models.replaced(bank)

    def _place_newcomers(self, context: Round) -> None:
        """Give participants without a model one; a client that no group fits, or whose rows were lost, sits out."""
        state = self.state
        new = [c for c in context.participants if c.key not in self.assignment and c.key not in state.unfit]
        if state.centres is None:
            self.assignment.update({client.key: 0 for client in new})
            return
        if not new:
            return
        assert state.folds is not None
        with context.meter.part("place"):
            placed, unfit = state.folds.place(new, state.centres, context)
        self.assignment.update(placed)
        folds = state.folds
        self._note_unsure(client.key for client in new if client.key in placed and not folds.has_whole_folds(client))
        if unfit:
            state.unfit |= unfit
            state.details[ADVICE] = no_group_fits(sorted(unfit))

    def _note_unsure(self, keys: Iterable[str]) -> None:
        due = self.context.server_round + _SETTLED
        self.state.unsure |= dict.fromkeys(sorted(keys), due)

    def _place_anew(self, context: Round) -> None:
        """Place clients with few samples once more, by their losses of the groups' models.

        One row of ten samples is mostly noise. The losses of models that have learned on the groups' data tell the
        same ten samples apart, and the client's own part in these models is as small as its data.
        """
        unsure = self.state.unsure
        due = [client for client in context.participants if unsure.get(client.key, math.inf) <= context.server_round]
        if not due:
            return
        with context.meter.part("place"):
            replies = context.ask_losses(due, context.models)
        for key, reply in replies.ok:
            if np.isfinite(reply.losses).any():
                self.assignment[key] = int(np.argmin(reply.losses))
            del unsure[key]

    def _with_somebody(self, context: Round) -> Round:
        """Return the round with other participants, as many, where none of those drawn has a group to train with."""
        able = [client for client in context.online if client.key in self.assignment]
        if not able or any(client.key in self.assignment for client in context.participants):
            return context
        count = min(len(context.participants), len(able))
        drawn = context.random(Purpose.PARTICIPATION).choice(len(able), size=count, replace=False)
        return replace(context, participants=[able[index] for index in sorted(drawn)])


def _mean_model(bank: FloatArray, members: Sequence[int]) -> FloatArray:
    """Return the mean of the members' models, of nobody that of all models."""
    # To the last bit, where they have one and the same.
    rows = members[:1] if len(set(members)) == 1 else members
    mean: FloatArray = (bank[list(rows)] if rows else bank).mean(axis=0)
    return mean
