"""Read the reply to `query.labels`: how many samples of each class a client has."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.replies import MAX_EXAMPLES, reply_metrics


@dataclass(frozen=True)
class LabelCounts:
    """Samples of each class (C,)."""

    counts: npt.NDArray[np.int64]

    @property
    def num_examples(self) -> int:
        """Samples of all classes together."""
        return int(self.counts.sum())


def read_label_counts(content: RecordDict, num_classes: int) -> LabelCounts:
    """Read the counts of `num_classes` classes.

    Raises
    ------
    MalformedMessage
        If keys, types or the number of counts is wrong, a count is negative, or there is no sample, or too many.
    """
    counts = reply_metrics(content, {kinds.LABEL_COUNTS}, arrays=False)[kinds.LABEL_COUNTS]
    if not isinstance(counts, list) or len(counts) != num_classes:
        found = len(counts) if isinstance(counts, list) else "no list of"
        raise MalformedMessage(f"{found} counts of labels came, not {num_classes}")
    # Summed as Python's integers: 64 bits could overflow.
    if not all(isinstance(count, int) and count >= 0 for count in counts) or not 1 <= sum(counts) <= MAX_EXAMPLES:
        raise MalformedMessage(f"{kinds.LABEL_COUNTS} are no integers from 0, together from 1 to {MAX_EXAMPLES}")
    return LabelCounts(np.array(counts, dtype=np.int64))
