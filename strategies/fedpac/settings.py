"""Settings of FedPAC."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.shared.prototype_settings import PrototypeSettings
from florets.task.keys import setting


@dataclass(frozen=True)
class FedPACSettings(PrototypeSettings):
    """One body for all, and for each client a head that is combined from those of clients with like features."""

    prototype_lambda: float = setting(
        1.0, "weight lambda of the mean square between features and global prototypes", least=0
    )
    head_epochs: float = setting(1.0, "local epochs of the head alone, before the body's training", above=0)
    head_rate: float = setting(10.0, "factor on the learning rate for the head's epochs", above=0)
    least_weight: float = setting(0.001, "weights of other clients' heads below it count nothing", least=0, most=1)

    features: ClassVar[str] = "FedPAC compares mean features of classes"
    layer: ClassVar[str] = "the head is one linear layer"
