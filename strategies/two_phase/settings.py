"""Settings of two-phase mixed regression."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Experiment, Initial, Settings
from florets.task.keys import setting

FEWEST_EXAMPLES = 2
"""A pair: the least that a moment matrix is made of."""


@dataclass(frozen=True)
class TwoPhaseSettings(Settings):
    """Mixed regression: a few anchors estimate coarse models by moment descent, then all clients refine them."""

    moment_rounds: int = setting(5, "rounds of phase 1, before those of num_rounds; 0: phase 2 alone", least=0)
    anchors: int | Literal["auto"] = setting("auto", "number of anchors; auto: ceil(3 k ln k), at least k")
    min_anchor_examples: int = setting(
        FEWEST_EXAMPLES, "clients with fewer training samples cannot be anchors", least=FEWEST_EXAMPLES
    )
    subspace: Literal["iteration", "direct"] = setting(
        "iteration",
        "how subspaces are computed; direct: one exchange, but clients send gradients of single samples (privacy!)",
    )
    subspace_clients: int | Literal["all"] = setting("all", "clients asked for their moments in a round of phase 1")
    fresh: bool = setting(False, "never ask an anchor for its moments, nor a client twice")
    alpha: float = setting(
        1.0, "lower bound on the inputs' covariance; the step is alpha sigma / (2 beta^2)", above=0
    )
    beta: float = setting(1.0, "upper bound on the inputs' covariance", above=0)
    local_solver: Literal["fedavg", "fedprox"] = setting(
        "fedavg", "phase 2: local steps, or the proximal problem with eta=train.learning_rate"
    )
    weighting: Literal["all_participants", "examples"] = setting(
        "all_participants", "phase 2: average relative to all participants' samples, or the model's own clients'"
    )
    init: Literal["different", "same", "orthonormal"] = setting(
        "different", "the K initial models; phase 1 starts from the first one"
    )

    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models",),
        "personal": ("none", "intercept", "slopes"),
    }

    @property
    def initial(self) -> Initial:
        """The initial models."""
        return self.init

    @property
    def rounds_before(self) -> int:
        """Rounds of phase 1."""
        return self.moment_rounds

    def conflicts(self) -> list[str]:
        """Refuse fresh clients where all are asked at once."""
        if self.fresh and self.subspace_clients == "all":
            return ["strategy.fresh=true: needs a number as strategy.subspace_clients, not all clients at once."]
        return []

    def problems(self, run: Experiment) -> list[str]:
        """Refuse too few clients for phase 1, as far as their number alone tells, and a solver without steps."""
        return [*self._too_few_clients(run), *self._train(run)]

    @property
    def asks(self) -> frozenset[str]:  # type: ignore[override]  # it depends on a key
        """Moments in phase 1, choices in phase 2."""
        return frozenset({"moments", "choices"} if self.moment_rounds else {"choices"})

    def _too_few_clients(self, run: Experiment) -> list[str]:
        anchors, asked = self.anchors, self.subspace_clients
        least = run.k if run.k != "auto" else 1
        if anchors != "auto" and anchors < least:
            return [f"strategy.anchors={anchors}: must be at least k={run.k}, to find a group for each model."]
        # Of nodes with data of their own nobody knows how many will come: phase 1 itself says where they are too few.
        if not self.fresh or asked == "all" or run.task.partition == "own":
            return []
        needed = self.moment_rounds * asked + (least if anchors == "auto" else anchors)
        if needed <= run.num_clients:
            return []
        return [
            f"strategy.fresh=true: {self.moment_rounds} rounds of {asked} clients each and the anchors need at least "
            f"{needed} clients, but num_clients={run.num_clients}; lower strategy.subspace_clients or "
            "strategy.moment_rounds, or use strategy.fresh=false."
        ]

    def _train(self, run: Experiment) -> list[str]:
        problems = []
        if self.local_solver == "fedprox" and run.train.schedule != "constant":
            problems.append(
                f"train.schedule={run.train.schedule}: strategy.local_solver=fedprox takes mu = "
                "1/train.learning_rate in all rounds; use train.schedule=constant, or strategy.local_solver=fedavg."
            )
        # With a penalty the local problem is solved by steps.
        linear = run.task.model == "linear" and "squared_error" in run.task.loss
        if self.local_solver == "fedprox" and linear and run.train.has_closed_form and run.train.momentum:
            problems.append(
                f"train.momentum={run.train.momentum}: strategy.local_solver=fedprox solves linear regressions "
                "exactly, without steps; leave it out, or use strategy.local_solver=fedavg."
            )
        if self.local_solver == "fedprox" and run.train.optimizer != "sgd":
            problems.append(
                "strategy.local_solver=fedprox: is defined by plain gradient steps, not by "
                f"{run.train.optimizer}; add train.optimizer=sgd."
            )
        return problems
