"""Settings of CLoVE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Weighted, key


@dataclass(frozen=True)
class CloveSettings(Weighted):
    """The server clusters the clients' loss vectors and matches clusters to models."""

    clustering: Literal["kmeans", "agglomerative"] = key("kmeans", "how loss vectors are clustered")
    k_min_improvement: float = key(
        0.0,
        "least relative gain that a larger K must bring; negative: a loss that it may cost (k=auto)",
        above=-1,
        note="0 takes any gain",
    )
    matching: Literal["min_cost", "overlap", "none"] = key("min_cost", "how clusters are matched to models")
    square_root: bool = key(False, "take the square root of the losses before clustering and matching")
    stability_rounds: int = key(3, "a client is stable when its last s assignments are equal", least=1)
    stability_fraction: float = key(
        1.0, "fraction of a round's participants that must be stable", above=0, most=1, note="1.0 means all"
    )
    stop_when_stable: bool = key(True, "freeze the clustering once it is stable")
    reassign_unstable: bool = key(False, "then also place anew the clients that were not stable themselves")
    outlier_loss: float | None = key(
        100.0,
        "reject clients whose best loss is over this many times the median client's worst, two rounds running; "
        "null: nobody",
        least=1,
        note="null rejects nobody",
    )
    probes: int = key(
        0, "random models beside the K that loss vectors are also taken on, and that nobody trains", least=0
    )
    memory: bool = key(False, "cluster the latest loss vectors of all clients seen, not only this round's")

    @property
    def extra_models(self) -> int:
        """First models that the algorithm needs beside the K that are trained."""
        return self.probes

    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update"),
        "loss_data": ("train", "held_out"),
        "choose_k": ("silhouette", "silhouette_lone", "elbow", "folds"),
    }
