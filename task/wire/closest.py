"""Read the reply to `evaluate.closest`: for how many of a client's samples each of K models has the least loss."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.replies import example_count, reply_metrics


@dataclass(frozen=True)
class ClosestCounts:
    """Training samples that each model explains best, (K,), together `num_examples`."""

    counts: npt.NDArray[np.int64]
    num_examples: int


def read_closest(content: RecordDict, num_models: int) -> ClosestCounts:
    """Read the counts of `num_models` models.

    Raises
    ------
    MalformedMessage
        If keys, types or the number of counts is wrong, one is negative, or they do not sum to the examples.
    """
    metrics = reply_metrics(content, {kinds.CLOSEST_COUNTS, kinds.NUM_EXAMPLES}, arrays=False)
    counts, examples = metrics[kinds.CLOSEST_COUNTS], example_count(metrics)
    if not isinstance(counts, list) or len(counts) != num_models:
        found = len(counts) if isinstance(counts, list) else "no list of"
        raise MalformedMessage(f"{found} {kinds.CLOSEST_COUNTS} counts came, not {num_models}")
    # Summed as Python's integers: 64 bits could overflow.
    if not all(isinstance(count, int) and count >= 0 for count in counts) or sum(counts) != examples:
        raise MalformedMessage(f"{kinds.CLOSEST_COUNTS} are no integers from 0, together {examples}")
    return ClosestCounts(np.array(counts, dtype=np.int64), examples)
