"""Samples that a client computes on, counted where they pass through a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Effort:
    """Passes of samples through models.

    Parameters
    ----------
    gradients
        Gradient evaluations: passes forward and back, one for each sample and model.
    losses
        Loss evaluations: passes forward alone.
    """

    gradients: int = 0
    losses: int = 0


_counting: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextmanager
def counted() -> Iterator[Effort]:
    """Count what is computed within the block."""
    effort = Effort()
    token = _counting.set(effort)
    try:
        yield effort
    finally:
        _counting.reset(token)


def count(gradients: int = 0, losses: int = 0) -> None:
    """Add to the count, where one is taken."""
    if (effort := _counting.get()) is not None:
        effort.gradients += gradients
        effort.losses += losses
