"""Results that were computed for several messages at once, of which each one's handler asks for its own."""

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
        Mean loss of each of the message's K models (K,), as it may be sent (`florets.client_app.outgoing.reported`).
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
