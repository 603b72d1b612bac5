"""Settings of the methods that hold a client's features near those of other clients, class by class."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Experiment, Settings
from florets.task.keys import setting


@dataclass(frozen=True)
class PrototypeSettings(Settings):
    """The head's layer, whose inputs are the features, and what features of classes need."""

    head_layers: list[str] = setting([], "name of the linear layer whose inputs are the features; none: the last one")

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    features: ClassVar[str]
    """What the algorithm does with features of classes, with its name."""
    layer: ClassVar[str] = "features are the inputs of one layer"
    """Why several layers make no sense."""

    def conflicts(self) -> list[str]:
        """Refuse several layers, of which nobody could say whose inputs are meant."""
        if len(self.head_layers) <= 1:
            return []
        named = ",".join(self.head_layers)
        return [f"strategy.head_layers=[{named}]: {self.layer}; name one, or leave it out."]

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a task without classes."""
        if run.task.loss == "cross_entropy":
            return []
        return [
            f"task.loss={run.task.loss}: {self.features}, so the task must have some; use "
            "task.loss=cross_entropy, or another strategy."
        ]
