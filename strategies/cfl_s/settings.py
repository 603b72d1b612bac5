"""Settings of CFL-S."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Compared, SharedLayers
from florets.task.keys import setting


@dataclass(frozen=True)
class CFLSSettings(SharedLayers):
    """Federated averaging that splits a cluster in two once its model rests and its clients do not."""

    linkage: Literal["single", "complete"] = setting(
        "single", "how a cluster is split: as in the paper's algorithm, or as in its released code"
    )
    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of a cluster's average: uniform, or by examples"
    )
    thresholds: Literal["relative", "absolute"] = setting(
        "relative", "what the two thresholds are measured in: other norms of the run, or the paper's absolute norms"
    )
    mean_threshold: float | None = setting(
        None,
        "eps_1: a cluster may be split once the norm of its mean update is below this, relative to its median "
        "client's; null: 0.6, absolute 0.4",
        above=0,
    )
    client_threshold: float | None = setting(
        None,
        "eps_2: and while the norm of a client's update is above this, relative to the largest so far of a median "
        "client; null: 0.1, absolute 1.6",
        least=0,
    )
    least_gap: float | None = setting(
        None,
        "and where the mean cosine similarity within its halves exceeds the largest across by this; null: 0.2, "
        "absolute: whatever it is",
        above=-2,
        most=3,
    )
    first_split: int = setting(1, "no split before this round (the released code: 21)", least=1)

    compares: ClassVar[Compared] = "participants"
    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[float, float, float]:
        """eps_1, eps_2 and the least gap."""
        usual = (0.6, 0.1, 0.2) if self.thresholds == "relative" else (0.4, 1.6, -math.inf)
        given = (self.mean_threshold, self.client_threshold, self.least_gap)
        mean, client, gap = (default if own is None else own for own, default in zip(given, usual, strict=True))
        return mean, client, gap
