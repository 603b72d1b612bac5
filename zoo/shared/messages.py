"""Messages with prototypes of classes."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from florets import Update
from florets.task.wire import kinds
from florets.task.wire.codec import Numbers, Tensor
from florets.task.wire.records import MalformedMessage, Vector


@dataclass(frozen=True, kw_only=True)
class PrototypeUpdate(Update):
    """An update, the mean features (P, D) of the classes that a client has, and its samples of all classes (C,)."""

    counts: Annotated[npt.NDArray[np.int64], Numbers("C", name=kinds.LABEL_COUNTS, integer=True, least=0)]
    rows: Annotated[npt.NDArray[np.float32], Tensor("P", "D", name=kinds.PROTOTYPES, record=kinds.PROTOTYPES)]

    @property
    def prototypes(self) -> Vector:
        """The prototype of each class (C, D), 0 of those that the client does not have."""
        return self._by_class(self.rows)

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The prototypes, which the server averages."""
        return self.rows

    def _by_class(self, rows: npt.NDArray[np.float32]) -> Vector:
        found = np.zeros((len(self.counts), rows.shape[1]))
        found[self.counts > 0] = rows
        return found

    def check(self) -> None:
        """Hold the counts to the examples, and the rows to the classes."""
        if int(self.counts.sum()) != self.num_examples:
            raise MalformedMessage(f"{kinds.LABEL_COUNTS} do not sum to the {self.num_examples} examples")
        if (classes := np.count_nonzero(self.counts)) != len(self.rows):
            raise MalformedMessage(f"{len(self.rows)} {kinds.PROTOTYPES} came of {classes} classes")


def pack_prototypes(prototypes: Vector, classes: npt.NDArray[np.int64]) -> ArrayRecord:
    """Return the global prototypes (P, D) of these classes (P,) as they are sent."""
    return ArrayRecord(
        {kinds.PROTOTYPES: Array(prototypes.astype(np.float32)), kinds.CLASSES: Array(classes.astype(np.int64))}
    )
