"""Loss of each step of local training, recorded where somebody asks for it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from florets.task.training.transfers import on_host

_recorded: ContextVar[list[Tensor | float] | None] = ContextVar("step_losses", default=None)


@contextmanager
def recorded() -> Iterator[list[float]]:
    """Record the mean loss of each step's batch, as seen before the step, within the block; read them after it."""
    losses: list[float] = []
    found: list[Tensor | float] = []
    token = _recorded.set(found)
    try:
        yield losses
    finally:
        _recorded.reset(token)
    # All at once: a number that is asked of a device at each step waits for the step.
    fetched = iter(on_host(*(loss for loss in found if isinstance(loss, Tensor))))
    losses += [next(fetched).item() if isinstance(loss, Tensor) else loss for loss in found]


def recording() -> bool:
    """Return whether losses are being recorded."""
    return _recorded.get() is not None


def record(loss: Tensor | float) -> None:
    """Add the loss of a step, where losses are being recorded."""
    if (losses := _recorded.get()) is not None:
        losses.append(loss.detach() if isinstance(loss, Tensor) else loss)


def in_parts(losses: Sequence[float], number: int) -> NDArray[np.float64]:
    """Return the mean loss of each of a number of equal parts of a training, from its first step to its last.

    Of as many steps as parts these are the steps' losses; of fewer some stand for several parts, so that trainings
    of different lengths can be compared.

    Parameters
    ----------
    losses
        Of each of T steps.
    number
        S, at least 1.

    Returns
    -------
    (S,) float64
        Part s begins with step floor(s T / S), has at least one, and ends before the next part's.

    Raises
    ------
    ValueError
        If there is no loss, or `number` is below 1.
    """
    if not losses or number < 1:
        raise ValueError(f"{len(losses)} losses of steps cannot make {number} parts: both must be at least 1.")
    starts = np.arange(number + 1) * len(losses) // number
    values = np.array(losses, dtype=np.float64)
    return np.array([values[a : max(a + 1, b)].mean() for a, b in pairwise(starts)])
