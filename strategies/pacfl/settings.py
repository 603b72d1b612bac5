"""Settings of PACFL."""

from dataclasses import dataclass
from typing import Literal

from florets.strategies.shared.tree_settings import TreeSettings
from florets.task.keys import setting


@dataclass(frozen=True)
class PACFLSettings(TreeSettings):
    """Clients send principal vectors of their inputs; the server groups them once by angles, then FedAvg in each."""

    vectors: int = setting(3, "p, principal vectors that a client sends of each class, or of all its data", least=1)
    vectors_of: Literal["class", "client"] = setting(
        "class",
        "principal vectors of each class, or of all of a client's samples, as always where there are no classes",
    )
    angle: Literal["smallest_pair", "smallest_principal", "sum_corresponding"] = setting(
        "smallest_pair",
        "distance in degrees: smallest angle of any two vectors, smallest principal angle of the subspaces, or the "
        "sum of the angles of corresponding vectors",
    )
    linkage: Literal["weighted", "average", "single", "complete"] = setting(
        "weighted", "distance of merged clusters; weighted: the plain mean of the two"
    )
