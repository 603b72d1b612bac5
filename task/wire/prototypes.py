"""Global class prototypes in a message, and the reply to `train.prototypes`: an update and a client's prototypes."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, Layout, MalformedMessage, Vector, read_array
from florets.task.wire.replies import Update, example_count, finite_number, reply_metrics, update_vector


@dataclass(frozen=True)
class PrototypeUpdate(Update):
    """An update, the client's prototype of each class (C, D), 0 where it has none, and its samples of each (C,)."""

    prototypes: Vector = field(kw_only=True)
    counts: npt.NDArray[np.int64] = field(kw_only=True)

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The prototypes, which the server averages."""
        return self.prototypes


def pack_prototypes(prototypes: Vector, classes: npt.NDArray[np.int64]) -> ArrayRecord:
    """Return the global prototypes (P, D) of these classes (P,) as they are sent."""
    return ArrayRecord(
        {kinds.PROTOTYPES: Array(prototypes.astype(np.float32)), kinds.CLASSES: Array(classes.astype(np.int64))}
    )


def read_prototype_update(
    content: RecordDict, layout: Layout, model: int, num_classes: int, width: int
) -> PrototypeUpdate:
    """Read an update, and the client's prototypes of `width` entries for each class that it has.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, or the samples of all classes are not the client's.
    """
    keys = {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.LABEL_COUNTS}
    metrics = reply_metrics(content, keys, arrays=True, beside={kinds.PROTOTYPES})
    examples, counts = example_count(metrics), metrics[kinds.LABEL_COUNTS]
    if not isinstance(counts, list) or len(counts) != num_classes:
        found = len(counts) if isinstance(counts, list) else "no list of"
        raise MalformedMessage(f"{found} counts of labels came, not {num_classes}")
    # Summed as Python's integers: 64 bits could overflow.
    if not all(isinstance(count, int) and count >= 0 for count in counts) or sum(counts) != examples:
        raise MalformedMessage(f"{kinds.LABEL_COUNTS} are no integers from 0 that sum to {examples}")
    record = content.get(kinds.PROTOTYPES)
    if not isinstance(record, ArrayRecord) or list(record) != [kinds.PROTOTYPES]:
        raise MalformedMessage(f"the reply must hold one array {kinds.PROTOTYPES!r} in a record of that name")
    present = np.flatnonzero(counts)
    rows = read_array(record[kinds.PROTOTYPES], Entry(kinds.PROTOTYPES, (len(present), width), "float32", 0))
    if not np.isfinite(rows).all():
        raise MalformedMessage("the prototypes hold NaN or infinite values")
    prototypes = np.zeros((num_classes, width))
    prototypes[present] = rows
    return PrototypeUpdate(
        model,
        update_vector(content, layout),
        examples,
        finite_number(metrics, kinds.TRAIN_LOSS),
        prototypes=prototypes,
        counts=np.array(counts, dtype=np.int64),
    )
