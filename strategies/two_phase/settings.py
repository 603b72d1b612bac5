"""Settings and state of two-phase mixed regression."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from florets.strategies.base.report import FIRST_PHASE, Client, State
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.settings import MODELS_OF_GROUPS, Experiment, Settings
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
    local_solver: Literal["fedavg", "fedprox"] = setting(
        "fedavg", "phase 2: local steps, or the proximal problem with eta=train.learning_rate"
    )
    weighting: Literal["all_participants", "examples"] = setting(
        "all_participants", "phase 2: average relative to all participants' samples, or the model's own clients'"
    )

    follows = MODELS_OF_GROUPS

    @property
    def rounds_before(self) -> int:
        """Rounds of phase 1."""
        return self.moment_rounds

    @property
    def asks(self) -> frozenset[str]:  # type: ignore[override]  # it depends on a key
        """Moments in phase 1, choices in phase 2."""
        return frozenset({"moments", "choices"} if self.moment_rounds else {"choices"})

    def problems(self, run: Experiment) -> list[str]:
        """Refuse fewer anchors than models, fresh clients among all, and proximal problems without plain steps."""
        problems, train = [], run.train
        if self.fresh and self.subspace_clients == "all":
            problems.append(
                "strategy.fresh=true: needs a number as strategy.subspace_clients, not all clients at once."
            )
        if isinstance(run.k, int) and self.anchors != "auto" and self.anchors < run.k:
            problems.append(
                f"strategy.anchors={self.anchors}: must be at least k={run.k}, to find a group for each model."
            )
        plain = train.optimizer == "sgd" and not train.momentum and train.schedule == "constant"
        if self.local_solver == "fedprox" and not plain:
            problems.append(
                "strategy.local_solver=fedprox: is defined by plain gradient steps, with mu = 1/train.learning_rate "
                "in all rounds; use train.optimizer=sgd train.momentum=0 train.schedule=constant."
            )
        return problems


@dataclass
class TwoPhaseState(State):
    """What both phases remember: the assignment, and the anchors of the first."""

    phase: str = FIRST_PHASE
    # The A clients that descend, in the order of their keys; their current estimates (A, R), and their groups (A,),
    # -1 where an anchor was never heard.
    anchors: list[Client] = field(default_factory=list)
    estimates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    groups: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # Anchors that took a step.
    heard: set[str] = field(default_factory=set)
    # Clients that were asked for their moments, where they are asked once only.
    used: set[str] = field(default_factory=set)
    # The largest median size of moments so far, to tell outliers.
    scale: float = 0.0
