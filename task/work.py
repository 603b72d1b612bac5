"""Cost of the work that a client does: time, and passes of samples through models."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Cost of handling one message.

    Parameters
    ----------
    seconds
        Wall time on the client.
    gradients, losses
        Passes of samples through models, forward and back, and forward alone.
    """

    seconds: float = 0.0
    gradients: int = 0
    losses: int = 0


def total_work(parts: Iterable[Work]) -> Work:
    """Return the cost of several replies together."""
    total = Work()
    for part in parts:
        total = Work(total.seconds + part.seconds, total.gradients + part.gradients, total.losses + part.losses)
    return total
