"""`DescentSettings`: what phase 1 of mixed regression can be told."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from florets.strategies.two_phase.subspace import SubspaceSettings

FEWEST_EXAMPLES = 2
"""A pair: the least that a moment matrix is made of."""


@dataclass(frozen=True)
class DescentSettings:
    """Settings of phase 1.

    Parameters
    ----------
    rounds
        T, its rounds; 0 leaves phase 1 out.
    anchors
        m_H, the number of anchors; "auto": ceil(3 k ln k), or all clients that may be one where they are fewer.
    min_anchor_examples
        Clients with fewer examples are no anchors.
    subspace
        How the subspaces are found.
    subspace_clients
        m, the clients asked in each round for their moments; "all": everybody with a pair of examples.
    fresh
        Ask only clients that are no anchors and were not asked in an earlier round, as the theory has it.
    alpha, beta
        Bounds on the inputs' covariance: the step is alpha sigma / (2 beta^2).
    epsilon, delta
        An anchor stops for good at sigma <= epsilon alpha delta / sqrt(2); `delta`, the least distance between true
        models, None: never.
    grouping
        "exactly_k": k groups by average linkage. "threshold": anchors nearer than delta / 2 are one group.

    Raises
    ------
    ValueError
        If a setting is out of its range or lacks one that it needs.

    Source: mixed regression, Phase 1 (Federated Moment Descent).
    """

    rounds: int = 5
    anchors: int | Literal["auto"] = "auto"
    min_anchor_examples: int = FEWEST_EXAMPLES
    subspace: SubspaceSettings = field(default_factory=SubspaceSettings)
    subspace_clients: int | Literal["all"] = "all"
    fresh: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    epsilon: float = 0.05
    delta: float | None = None
    grouping: Literal["exactly_k", "threshold"] = "exactly_k"

    def __post_init__(self) -> None:
        """Check what would fail in the middle of a run."""
        if self.grouping == "threshold" and self.delta is None:
            raise ValueError("grouping=threshold joins anchors nearer than delta/2: give delta, or use exactly_k")
        if self.fresh and self.subspace_clients == "all":
            raise ValueError("fresh=true with subspace_clients=all leaves nobody for the second round; give a number")
        for name in ("alpha", "beta", "epsilon"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")

    @property
    def stop_below(self) -> float:
        """Residual up to which an anchor has arrived; negative where it never stops."""
        return -1.0 if self.delta is None else self.epsilon * self.alpha * self.delta / np.sqrt(2)
