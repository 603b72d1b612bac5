"""Settings of Ditto."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Settings
from florets.task.keys import setting


@dataclass(frozen=True)
class DittoSettings(Settings):
    """FedAvg, and beside it a personal model for each client, held near the global one by a proximal term."""

    proximal_lambda: float = setting(
        1.0,
        "weight lambda of the personal models' term lambda/2 |v - global|^2; 0: Local-only beside FedAvg",
        least=0,
    )

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}
