"""IFCA: each client picks the model with the lowest loss on its data and trains it, in one exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.base.report import State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import Experiment, Weighted
from florets.task.keys import setting
from florets.task.wire.leaving import CHOICES, LOSS_VECTORS, MODELS


@dataclass(frozen=True)
class IFCASettings(Weighted):
    """Each client picks the model with the lowest loss on its data, and trains it."""

    choose_by: Literal["loss", "accuracy"] = setting(
        "loss", "by what clients choose their model: the lowest loss, or the highest accuracy"
    )

    asks: ClassVar[frozenset[str]] = frozenset({"choices"})
    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update"),
        "loss_data": ("train", "held_out"),
        "personal": ("none", "intercept", "slopes"),
        "choose_k": ("folds",),
    }

    def problems(self, run: Experiment) -> list[str]:
        """Refuse choices by accuracy in a task without classes."""
        problems = super().problems(run)
        if self.choose_by == "accuracy" and run.task.loss != "cross_entropy":
            problems.append(f"strategy.choose_by=accuracy: task.loss={run.task.loss} has no classes; leave it out.")
        return problems


@dataclass
class IFCAState(State):
    """IFCA remembers nothing, and never stops clustering."""

    phase: str = "clustering"


class IFCA(Strategy[IFCASettings, IFCAState]):
    """Iterative federated clustering: the client's choice is the clustering.

    With `first_round=evaluate` clients choose from the first round on, as in the paper.

    Source: Ghosh et al. 2020, Alg. 1 (l. 7 and 8: the choice; option I gradients, option II models).
    Deviation: clients weigh in their model's mean by their examples (`weighting=examples`). Option II takes the plain
    mean (`uniform`, the same for clients of equal size); option I divides a model's sum of gradients by all clients
    (`all_participants`), with which K groups take about 1/K of the step: on CFL-GP's Table 9 with 20 clients 75.2 ±
    4.6 against 85.4 ± 2.9 % (3 seeds).
    Deviation: round 1 is `random` by default, as CLoVE's is.
    """

    leaving = (MODELS, CHOICES, LOSS_VECTORS)
    Settings = IFCASettings
    State = IFCAState

    def round(self, r: Round) -> Steps:
        """Send all models, let each participant choose and train (l. 6 to 8), average each model (l. 9 to 11)."""
        updates = yield r.train_best(by=self.settings.choose_by)
        return r.average(updates)
