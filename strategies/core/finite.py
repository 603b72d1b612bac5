"""Replacement of losses that are not finite: a model that diverged must not end the run."""

import numpy as np

from florets.strategies.core import FloatArray


def finite_losses(losses: FloatArray) -> FloatArray:
    """Return the losses with every NaN or infinity replaced by the largest finite loss.

    A model that diverged gives NaN to all clients; its column then becomes constant, tells no clients
    apart, and is as unattractive as the worst loss that was seen. Where no entry is finite all become 0.

    Parameters
    ----------
    losses : (M, K) float
        Loss vectors, one row a client. Not modified.

    Returns
    -------
    (M, K) float64
        A copy without NaN, infinity or negative zero.
    """
    # Adding 0.0 turns -0.0 into 0.0, which is otherwise another row to a bytewise comparison.
    clean: FloatArray = np.array(losses, dtype=np.float64) + 0.0
    bad = ~np.isfinite(clean)
    if bad.any():
        good = clean[~bad]
        clean[bad] = good.max() if good.size else 0.0
    return clean
