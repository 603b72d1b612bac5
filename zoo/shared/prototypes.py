"""Class prototypes: their message, the linear layer whose inputs are features, and the global means."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from florets import Plan, Round, State, Strategy, Update, setting
from florets.client_app.client import Client
from florets.client_app.session import State as ModelState
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.aggregate import average_models
from florets.strategies.core.robust import Robust, RobustRule
from florets.strategies.settings import MODELS_ALONE
from florets.strategies.shared.estimates import last_layer
from florets.task.training.features import features
from florets.task.training.modules import load
from florets.task.wire import codec, kinds
from florets.task.wire.codec import Numbers, Tensor
from florets.task.wire.records import MalformedMessage
from florets.zoo.shared.of_classes import OfClasses


@dataclass(frozen=True)
class PrototypeSettings(OfClasses):
    """What features of classes need."""

    prototype_lambda: float = setting(
        1.0, "weight lambda of the mean square between features and global prototypes", least=0
    )

    one_model: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows = MODELS_ALONE


@dataclass(frozen=True, kw_only=True)
class PrototypeUpdate(Update):
    """An update, the mean features (P, D) of the classes that a client has, and its samples of all classes (C,)."""

    counts: Annotated[IntArray, Numbers("C", name=kinds.LABEL_COUNTS, integer=True, least=0)]
    rows: Annotated[NDArray[np.float32], Tensor("P", "D", name=kinds.PROTOTYPES, record=kinds.PROTOTYPES)]

    @property
    def prototypes(self) -> FloatArray:
        """The prototype of each class (C, D), 0 of those that the client does not have."""
        return self._by_class(self.rows)

    @property
    def others(self) -> NDArray[np.floating]:
        """The prototypes, which the server averages."""
        return self.rows

    def _by_class(self, rows: NDArray[np.float32]) -> FloatArray:
        found = np.zeros((len(self.counts), rows.shape[1]))
        found[self.counts > 0] = rows
        return found

    def check(self) -> None:
        """Hold the counts to the examples, and the rows to the classes."""
        if int(self.counts.sum()) != self.num_examples:
            raise MalformedMessage(f"{kinds.LABEL_COUNTS} do not sum to the {self.num_examples} examples")
        if (classes := np.count_nonzero(self.counts)) != len(self.rows):
            raise MalformedMessage(f"{len(self.rows)} {kinds.PROTOTYPES} came of {classes} classes")


S = TypeVar("S", bound=PrototypeSettings)
P = TypeVar("P", bound=State)


class WithPrototypes(Strategy[S, P]):
    """An algorithm whose clients send a `PrototypeUpdate`."""

    def check(self, models: Models) -> None:
        """Refuse a model whose features' size is not plain, and a task whose number of classes is not known."""
        super().check(models)
        feature_width(models)
        if self.num_outputs < 1:
            raise ValueError(f"{type(self).__name__} needs the number of classes: give num_outputs.")

    def train_near(
        self,
        handler: str,
        reply: type[PrototypeUpdate],
        start: Callable[[str], ArrayRecord],
        prototypes: Mapping[str, ArrayRecord],
        r: Round,
        **more: object,
    ) -> Plan[Update]:
        """Plan that every participant trains the model from which it starts, near the prototypes."""
        own = {kinds.PROTOTYPE_LAMBDA: self.settings.prototype_lambda, kinds.HEAD: [last_layer(r.models)]}
        settings = {**r.averaging.settings, **own, **more}
        requests = [
            r.request_custom(handler, client, start(client.key), settings, prototypes) for client in r.participants
        ]
        sizes = {"layout": r.models.layout, "C": self.num_outputs, "D": feature_width(r.models)}
        return Plan(requests, lambda key, content: codec.read(reply, content, model=self.assignment[key], **sizes))


def pack_prototypes(prototypes: FloatArray, classes: IntArray) -> ArrayRecord:
    """Return the global prototypes (P, D) of these classes (P,) as they are sent."""
    return ArrayRecord(
        {kinds.PROTOTYPES: Array(prototypes.astype(np.float32)), kinds.CLASSES: Array(classes.astype(np.int64))}
    )


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


def robust_means(
    rows: FloatArray, groups: IntArray, weights: FloatArray, count: int, rule: RobustRule | None
) -> FloatArray:
    """Return the weighted mean, or what `rule` has in its place, of each of `count` groups (P,) of rows (P, R)."""
    start, integers = np.zeros((count, rows.shape[1])), np.zeros(rows.shape[1], dtype=np.bool_)
    robust = None if rule is None else Robust(rule, rows, groups, start)
    return average_models(start, rows, groups, weights, "examples", integers, robust=robust)


def feature_width(models: Models) -> int:
    """Return the size D of a feature."""
    name = last_layer(models)
    for entry in models.layout.entries:
        if entry.name == f"{name}.weight" and len(entry.shape) == 2:
            return entry.shape[1]
    raise ValueError(
        f"layer {name!r} has no matrix {name}.weight, whose columns say how large a feature is; use a model whose "
        "last layer is linear."
    )


def class_labels(client: Client) -> IntArray:
    """Return the class of each training sample (n,)."""
    if client.loss != "cross_entropy":
        raise ValueError(f"prototypes need classes, which a task with task.loss={client.loss} does not have")
    labels: IntArray = client.data.y_train.cpu().numpy()
    return labels


def own_features(client: Client, state: ModelState, head: Sequence[str]) -> FloatArray:
    """Return the features (n, D) of the training samples in a model, the inputs of its head."""
    load(client.module, state)
    return features(client.module, client.data.x_train, head)


def copied(arrays: dict[str, NDArray[np.float32]]) -> ModelState:
    """Return a model's entries in memory of their own: as trained they may be the memory of the one module."""
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


def class_means(rows: FloatArray, labels: IntArray, num_classes: int) -> tuple[NDArray[np.float32], IntArray]:
    """Return the mean feature of each class that is there, (P, D) in the order of classes, and all counts (C,)."""
    counts = np.bincount(labels, minlength=num_classes)
    means = [rows[labels == label].mean(axis=0) for label in np.flatnonzero(counts)]
    return np.stack(means).astype(np.float32), counts
