"""Reply to `query.intercept`: a client's estimate of its own offsets of a model's outputs, and their basis."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.replies import example_count, reply_metrics


@dataclass(frozen=True)
class Intercept:
    """Offsets (W,) in `offset_basis`, their variances (W,), of values a residual's, and the training records."""

    offsets: npt.NDArray[np.float64]
    variances: npt.NDArray[np.float64]
    num_examples: int


def offset_basis(num_outputs: int) -> npt.NDArray[np.float64]:
    """Return the basis (C, W) in which offsets travel: an offset of each output is the basis times W numbers.

    One output: itself. Two classes: the difference between class 1 and class 0. More: C - 1 orthonormal contrasts
    (Helmert's), because only differences between classes change a probability.
    """
    if num_outputs == 1:
        return np.ones((1, 1))
    if num_outputs == 2:
        return np.array([[-0.5], [0.5]])
    # Row k compares class k with the mean of the classes before it.
    steps = np.arange(1, num_outputs)
    contrasts = np.tri(num_outputs - 1, num_outputs)
    contrasts[steps - 1, steps] = -steps
    found: npt.NDArray[np.float64] = (contrasts / np.sqrt(steps * (steps + 1))[:, np.newaxis]).T
    return found


def read_intercept(content: RecordDict, width: int) -> Intercept:
    """Read the estimate of `width` offsets.

    Raises
    ------
    MalformedMessage
        If keys, types or the number of values is wrong, or a value is not finite, or a variance negative.
    """
    metrics = reply_metrics(content, {kinds.OFFSETS, kinds.VARIANCES, kinds.NUM_EXAMPLES}, arrays=False)
    found = []
    for name, least in ((kinds.OFFSETS, -kinds.DIVERGED), (kinds.VARIANCES, 0.0)):
        values = metrics[name]
        # A NaN passes no comparison.
        if (
            not isinstance(values, list)
            or len(values) != width
            or not all(least <= value <= kinds.DIVERGED for value in values)
        ):
            raise MalformedMessage(f"{name} are no {width} numbers from {least:g} to {kinds.DIVERGED:g}")
        found.append(np.array(values, dtype=np.float64))
    return Intercept(found[0], found[1], example_count(metrics))
