"""Messages that several algorithms send."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array

from florets.task.wire import kinds
from florets.task.wire.codec import Item, Sizes
from florets.task.wire.codec import Vector as FlatModel
from florets.task.wire.folds import Float32, RowForm, without_empty
from florets.task.wire.records import Entry, Vector, read_array, write_array
from florets.task.wire.replies import Examples, Update

TRAIN_FOLDS = "florets.strategies.shared.client:train_folds"
QUERY_FOLDS = "florets.strategies.shared.client:query_folds"
TRAIN_BILEVEL = "florets.strategies.shared.client:train_bilevel"


class Rows(Item):
    """A client's rows of its folds in a `RowForm`: `form` and the number of `folds` are given."""

    record = name = "folds"

    def checked(self, name: str, value: Any, sizes: Sizes) -> Float32:
        """Return the rows, see `without_empty`; one row of data that cannot be divided."""
        form: RowForm = sizes["form"]
        count = 1 if tuple(value.shape) == (1, form.width) else sizes["folds"]
        return without_empty(form.unpack(read_array(value, Entry(name, (count, form.width), form.dtype, 0))))

    def packed(self, value: Any) -> Array:
        """Return them as they are sent."""
        return write_array(value)


@dataclass(frozen=True)
class FoldRows:
    """Reply to `QUERY_FOLDS`: rows (m, width), float32.

    (1, width) of a client whose data cannot be divided, or that learned nothing on some of the folds; (0, width) of
    one that learned nothing on any.
    """

    rows: Annotated[Float32, Rows()]
    num_examples: Examples


@dataclass(frozen=True, kw_only=True)
class FoldUpdate(Update):
    """Reply to `TRAIN_FOLDS`: an update, and rows as in `FoldRows`."""

    rows: Annotated[Float32, Rows()]

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The rows, flat."""
        return self.rows.ravel()


@dataclass(frozen=True)
class BilevelUpdate(Update):
    """Reply to `TRAIN_BILEVEL`: an update of `model`, and the global model (R,) after this client's training."""

    shared: Annotated[Vector, FlatModel(record=kinds.GLOBAL)] = field(kw_only=True)

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The global model, which the server averages as well."""
        return self.shared
