"""Read the reply to `query.descriptor`: mean and spread of a client's features, overall and by class."""

from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, MalformedMessage, Vector, read_array
from florets.task.wire.replies import example_count, reply_metrics


@dataclass(frozen=True)
class Descriptor:
    """Rows (2 (C + 1), l) float64: overall mean and spread, the classes' means, the classes' spreads."""

    rows: Vector
    num_examples: int


def read_descriptor(content: RecordDict, classes: int, dimensions: int, noisy: bool) -> Descriptor:
    """Read the descriptor of a task with C `classes`, projected on l `dimensions`.

    Raises
    ------
    MalformedMessage
        If records, keys, shape or dtype are wrong, a value is not finite, or a spread without noise is negative
        where its class is not marked as absent.
    """
    metrics = reply_metrics(content, {kinds.NUM_EXAMPLES}, arrays=True)
    arrays = content[kinds.ARRAYS]
    if not isinstance(arrays, ArrayRecord) or list(arrays) != [kinds.DESCRIPTOR]:
        raise MalformedMessage(f"the reply must hold one array {kinds.DESCRIPTOR!r}")
    entry = Entry(kinds.DESCRIPTOR, (2 * (classes + 1), dimensions), "float32", 0)
    rows = read_array(arrays[kinds.DESCRIPTOR], entry).astype(np.float64)
    if not np.isfinite(rows).all():
        raise MalformedMessage("the descriptor holds NaN or infinite values")
    means, spreads = rows[2 : 2 + classes], rows[2 + classes :]
    present = ~((means == -1.0).all(axis=1) & (spreads == -1.0).all(axis=1))
    if not noisy and ((rows[1] < 0).any() or (spreads[present] < 0).any()):
        raise MalformedMessage("a spread of the descriptor is negative")
    return Descriptor(rows, example_count(metrics))
