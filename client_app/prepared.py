"""Results that were computed for several messages at once, until each one's handler asks for its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.task.training.losses import Evaluated
from florets.task.training.stacked import Trained


@dataclass(frozen=True)
class Prepared:
    """What was computed for one message, together with others; None: nothing of that kind.

    Parameters
    ----------
    losses
        Mean loss of each of the message's K models (K,), not clipped.
    trained
        The model after local training.
    tested
        What the message's model comes to on the test set.
    seconds
        This message's share of the wall time.
    """

    losses: NDArray[np.float64] | None = None
    trained: Trained | None = None
    tested: Evaluated | None = None
    seconds: float = 0.0


NOTHING = Prepared()

_at_hand: dict[str, Prepared] = {}


@contextmanager
def at_hand(results: Mapping[str, Prepared]) -> Iterator[None]:
    """Keep results by the ids of their messages within the block."""
    _at_hand.update(results)
    try:
        yield
    finally:
        _at_hand.clear()


def prepared_for(message_id: str) -> Prepared:
    """Return what was computed for the message of an id, `NOTHING` where nothing was."""
    return _at_hand.get(message_id, NOTHING) if _at_hand else NOTHING
