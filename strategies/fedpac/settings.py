"""Settings of FedPAC."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Run, Settings, key


@dataclass(frozen=True)
class FedPacSettings(Settings):
    """One body for all, and for each client a head that is combined from those of clients with like features."""

    prototype_lambda: float = key(
        1.0, "weight lambda of the mean square between features and global prototypes", least=0
    )
    head_epochs: float = key(1.0, "local epochs of the head alone, before the body's training", above=0)
    head_rate: float = key(10.0, "factor on the learning rate for the head's epochs", above=0)
    least_weight: float = key(0.001, "weights of other clients' heads below it count nothing", least=0, most=1)
    head_layers: list[str] = key([], "name of the linear layer that is the head; none: the last one")

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    def conflicts(self) -> list[str]:
        """Refuse several layers, of which nobody could say whose inputs are meant."""
        if len(self.head_layers) <= 1:
            return []
        named = ",".join(self.head_layers)
        return [f"strategy.head_layers=[{named}]: the head is one linear layer; name one, or leave it out."]

    def problems(self, run: Run) -> list[str]:
        """Refuse a task without classes."""
        if run.task.loss == "cross_entropy":
            return []
        return [
            f"task.loss={run.task.loss}: FedPAC compares mean features of classes, so the task must have some; use "
            "task.loss=cross_entropy, or another strategy."
        ]
