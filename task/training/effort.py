"""Samples that a client computes on, counted where they pass through a model."""

from contextvars import ContextVar, Token
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


class counted:
    """Count what is computed within the block, which is given an `Effort`."""

    def __enter__(self) -> Effort:
        """Begin to count."""
        effort = Effort()
        self._token: Token[Effort | None] = _counting.set(effort)
        return effort

    def __exit__(self, *_: object) -> None:
        """Go on with the count that was taken before."""
        _counting.reset(self._token)


def count(gradients: int = 0, losses: int = 0) -> None:
    """Add to the count, where one is taken."""
    if (effort := _counting.get()) is not None:
        effort.gradients += gradients
        effort.losses += losses
