"""Settings of FedGWC."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Compared, Experiment, SharedLayers
from florets.task.keys import setting

LEAST_PARTICIPANTS = 3
"""Of two clients both are equally far from their mean: their rewards are equal, whatever their losses."""

MOST_GROUPS = 4
"""Of one split, unless `most_groups` says otherwise."""


@dataclass(frozen=True)
class FedGWCSettings(SharedLayers):
    """Clusters are split by how the losses of the sampled clients compare, once these comparisons rest."""

    fraction_train: float = setting(
        0.4,
        "participation rate rho: fraction of the clients that a round samples; at most 0.5 (the paper: 0.1 of 100 "
        "clients)",
        above=0,
        most=1,
    )
    reward_losses: int = setting(
        7,
        "S: losses that a client reports of its local training: of each step where it takes S steps, else means of S "
        "equal parts",
        least=1,
    )
    memory: Literal["recent", "all"] = setting(
        "recent",
        "interactions of two clients: as in the paper, forgotten by fraction_train whenever they meet, or the "
        "mean over all rounds in which they met",
    )
    gamma: float = setting(0.1, "affinity of two clients: exp(-gamma |difference of their columns|^2)", above=0)
    rest_threshold: float = setting(
        1e-5,
        "eps: a cluster may be split once the smoothed squared change of its interactions is below this",
        above=0,
    )
    thresholds: Literal["relative", "absolute"] = setting(
        "relative",
        "relative: eps holds for 10 of 100 clients a round and is converted; absolute: taken as it is",
    )
    most_groups: int | None = setting(
        None, "most groups that a cluster is split into at once; null: 1 / fraction_train, up to 4", least=2
    )
    most_index: float = setting(1.0, "a split needs a Davies-Bouldin index below this", above=0)

    compares: ClassVar[Compared] = "clients"
    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True
    # A gradient is one step, with one loss.
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",), "personal": ("none", "intercept")}

    @property
    def groups(self) -> int:
        """Most groups of one split."""
        if self.most_groups is not None:
            return self.most_groups
        # The small constant keeps 1 / 0.2 from losing one to rounding.
        return min(MOST_GROUPS, math.floor(1 / self.fraction_train + 1e-9))

    def conflicts(self) -> list[str]:
        """Refuse full participation, and a rate at which a cluster may not be split in two."""
        if self.fraction_train == 1:
            return [
                "strategy.fraction_train=1: FedGWC cannot split where all clients take part in every round: clients "
                "are compared by whom they take part with, and all would be with the same; use at most 0.5."
            ]
        if self.groups < 2:
            return [
                f"strategy.fraction_train={self.fraction_train}: FedGWC splits a cluster into at most "
                "1 / fraction_train groups, and here that is one; use at most 0.5, or set strategy.most_groups=2."
            ]
        return []

    def problems(self, run: Experiment) -> list[str]:
        """Refuse rounds of fewer clients than can be compared."""
        # Of nodes with data of their own nobody knows how many will come: round 1 says where they are too few.
        known = run.task.partition != "own"
        if not known or int(self.fraction_train * run.num_clients + 1e-9) >= LEAST_PARTICIPANTS:
            return []
        least = math.ceil(LEAST_PARTICIPANTS / self.fraction_train - 1e-9)
        return [
            f"num_clients={run.num_clients}: FedGWC compares the clients of a round, and with "
            f"strategy.fraction_train={self.fraction_train} there would be fewer than {LEAST_PARTICIPANTS}; use at "
            f"least {least} clients, or sample more of them."
        ]
