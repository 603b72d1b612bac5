"""FLUX: the messages that it alone sends."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire.codec import Tensor, read
from florets.task.wire.records import MalformedMessage
from florets.task.wire.replies import Examples

DESCRIPTOR = "florets.zoo.flux.client:descriptor"
_ABSENT = -1.0


@dataclass(frozen=True)
class Descriptor:
    """Reply to `DESCRIPTOR`: rows (2 (C + 1), l): overall mean and spread, the classes' means, their spreads."""

    rows: Annotated[npt.NDArray[np.float64], Tensor("rows", "l", name="descriptor", double=True)]
    num_examples: Examples


def read_descriptor(content: RecordDict, classes: int, dimensions: int) -> Descriptor:
    """Read the descriptor of a task with C `classes`, projected on l `dimensions`."""
    found = read(Descriptor, content, rows=2 * (classes + 1), l=dimensions)
    rows = found.rows
    means, spreads = rows[2 : 2 + classes], rows[2 + classes :]
    present = ~((means == _ABSENT).all(axis=1) & (spreads == _ABSENT).all(axis=1))
    if (rows[1] < 0).any() or (spreads[present] < 0).any():
        raise MalformedMessage("a spread of the descriptor is negative")
    return found
