"""Settings of FedEM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import SharedLayers


@dataclass(frozen=True)
class FedEMSettings(SharedLayers):
    """Each client mixes K models that all clients train, each sample as far as a model explains it."""

    mixes: ClassVar[bool] = True
    shares: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}
