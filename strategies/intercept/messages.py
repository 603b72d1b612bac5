"""Random intercepts: the messages that they alone send."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from florets.task.wire import kinds
from florets.task.wire.codec import Numbers
from florets.task.wire.replies import Examples

INTERCEPT = "florets.strategies.intercept.client:intercept"


@dataclass(frozen=True)
class Intercept:
    """Reply to `INTERCEPT`: offsets (W,) in `offset_basis`, their variances (W,), and the training records.

    The variances of values are a residual's.
    """

    offsets: Annotated[npt.NDArray[np.float64], Numbers("W", least=-kinds.DIVERGED, most=kinds.DIVERGED)]
    variances: Annotated[npt.NDArray[np.float64], Numbers("W", least=0, most=kinds.DIVERGED)]
    num_examples: Examples


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
