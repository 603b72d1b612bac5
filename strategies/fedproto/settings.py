"""Settings of FedProto."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.shared.prototype_settings import PrototypeSettings
from florets.task.keys import setting


@dataclass(frozen=True)
class FedProtoSettings(PrototypeSettings):
    """Every client trains a model of its own, held near mean features of the classes that all clients share."""

    prototype_lambda: float = setting(
        1.0, "weight lambda of the mean square between features and global prototypes; 0: Local-only", least=0
    )

    features: ClassVar[str] = "FedProto shares mean features of classes"
