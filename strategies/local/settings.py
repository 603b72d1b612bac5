"""Settings of Local-only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Settings


@dataclass(frozen=True)
class LocalSettings(Settings):
    """Every client trains alone: the reference without any federation."""

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models", "gradients")}
