"""Class prototypes: the linear layer whose inputs are features, and the global means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from florets import Experiment, Settings
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
    """What features of classes need."""

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    features: ClassVar[str]
    """What the algorithm does with features of classes, with its name."""

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a task without classes."""
        if run.task.loss == "cross_entropy":
            return []
        return [
            f"task.loss={run.task.loss}: {self.features}, so the task must have some; use "
            "task.loss=cross_entropy, or another method."
        ]


def feature_width(models: Models) -> int:
    """Return the size D of a feature."""
    name = last_layer(models)
    for entry in models.layout.entries:
        if entry.name == f"{name}.weight" and len(entry.shape) == 2:
            return entry.shape[1]
    names = ", ".join(entry.name for entry in models.layout.entries)
    raise ValueError(
        f"layer {name!r} has no matrix {name}.weight, whose columns say how large a feature is; use a model "
        f"whose last layer is linear; its entries are {names}."
    )


def robust_means(
    rows: FloatArray, groups: IntArray, weights: FloatArray, count: int, rule: RobustRule | None
) -> FloatArray:
    """Return the weighted mean, or what `rule` has in its place, of each of `count` groups (P,) of rows (P, R)."""
    start, integers = np.zeros((count, rows.shape[1])), np.zeros(rows.shape[1], dtype=np.bool_)
    robust = None if rule is None else Robust(rule, rows, groups, start)
    return average_models(start, rows, groups, weights, "examples", integers, robust=robust)
