"""Settings of FedProto."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Run, Settings, key


@dataclass(frozen=True)
class FedProtoSettings(Settings):
    """Every client trains a model of its own, held near mean features of the classes that all clients share."""

    prototype_lambda: float = key(
        1.0, "weight lambda of the mean square between features and global prototypes; 0: Local-only", least=0
    )
    head_layers: list[str] = key([], "name of the linear layer whose inputs are the features; none: the last one")

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    def conflicts(self) -> list[str]:
        """Refuse several layers, of which nobody could say whose inputs are meant."""
        if len(self.head_layers) <= 1:
            return []
        named = ",".join(self.head_layers)
        return [
            f"strategy.head_layers=[{named}]: features are the inputs of one layer; name the first of the head alone."
        ]

    def problems(self, run: Run) -> list[str]:
        """Refuse a task without classes."""
        if run.task.loss == "cross_entropy":
            return []
        return [
            f"task.loss={run.task.loss}: FedProto shares mean features of classes, so the task must have some; use "
            "task.loss=cross_entropy, or another strategy."
        ]
