"""Class prototypes: the linear layer whose inputs are features, its settings, and the global means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from florets import Experiment, Settings, setting
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.aggregate import average_models
from florets.strategies.core.robust import Robust, RobustRule
from florets.strategies.shared.estimates import last_layer


def global_prototypes(
    prototypes: Sequence[FloatArray], counts: Sequence[IntArray], rule: RobustRule | None = None
) -> tuple[FloatArray, IntArray]:
    """Return the prototypes (P, D) of the classes that some client has, and these classes (P,).

    `prototypes` are (C, D) of each client, in the order of their keys, where rows of classes that it lacks are not
    read; they are weighted by `counts` (C,), the client's samples of each class. A `rule` takes the mean's place.

    Source: Tan et al. 2022 (FedProto), Eq. 6.
    """
    weights = np.stack(counts).astype(np.float64)
    clients, labels = np.nonzero(weights)
    classes, groups = np.unique(labels, return_inverse=True)
    rows = np.stack(prototypes)[clients, labels]
    return robust_means(rows, groups, weights[clients, labels], len(classes), rule), classes


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
            "task.loss=cross_entropy, or another method."
        ]


def head_name(models: Models, head_layers: Sequence[str]) -> str:
    """Return the name of the layer: the one that is given, else the last."""
    return (head_layers or last_layer(models))[0]


def feature_width(models: Models, head_layers: Sequence[str]) -> int:
    """Return the size D of a feature."""
    name = head_name(models, head_layers)
    for entry in models.layout.entries:
        if entry.name == f"{name}.weight" and len(entry.shape) == 2:
            return entry.shape[1]
    names = ", ".join(entry.name for entry in models.layout.entries)
    raise ValueError(
        f"layer {name!r} has no matrix {name}.weight, whose columns say how large a feature is; name a linear layer "
        f"as strategy.head_layers; the model's entries are {names}."
    )


def robust_means(
    rows: FloatArray, groups: IntArray, weights: FloatArray, count: int, rule: RobustRule | None
) -> FloatArray:
    """Return the weighted mean, or what `rule` has in its place, of each of `count` groups (P,) of rows (P, R)."""
    start, integers = np.zeros((count, rows.shape[1])), np.zeros(rows.shape[1], dtype=np.bool_)
    robust = None if rule is None else Robust(rule, rows, groups, start)
    return average_models(start, rows, groups, weights, "examples", integers, robust=robust)
