"""Settings of StoCFL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Settings
from florets.task.keys import setting


@dataclass(frozen=True)
class StoCFLSettings(Settings):
    """Clusters merge as their clients are sampled, while alike; each trains a model near a global one."""

    tau: float = setting(
        0.65, "least cosine at which two clusters merge; -1 merges all, above 1 none", least=-1, most=2
    )
    mu: float = setting(0.05, "factor of the term mu/2 |theta - global|^2 in the clusters' training", least=0)
    anchor_epochs: int = setting(20, "passes over the client's data for its direction, once for each client", least=1)

    one_model: ClassVar[bool] = True
    """The clusters found say how many models there are."""
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",), "personal": ("none", "intercept")}
