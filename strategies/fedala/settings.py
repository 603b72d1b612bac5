"""Settings of FedALA."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Settings
from florets.task.keys import setting


@dataclass(frozen=True)
class FedALASettings(Settings):
    """FedAvg whose clients mix the global model's upper layers with their own, by weights that they learn."""

    layers: list[str] = setting([], "name prefixes of the layers that are mixed; none: the last one")
    weight_rate: float = setting(1.0, "step size eta of the weights; 0 leaves them at 1, which is FedAvg", least=0)
    sample_fraction: float = setting(
        0.8, "part of a client's training data that weights are learned on", above=0, most=1
    )
    tolerance: float = setting(
        0.01, "first weights have converged once 10 passes' losses have a smaller standard deviation", least=0
    )
    most_passes: int = setting(50, "passes after which first weights are taken as they are", least=1)

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}
