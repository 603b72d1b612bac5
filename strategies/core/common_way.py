"""Whether one model that all clients train still moves on, or has learned what they share."""

import numpy as np

from florets.strategies.core import FloatArray

STILL = 0.05
"""Share of the clients' own movement below which what two rounds have in common counts as none."""


def common_move(changes: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the mean of the clients' updates, in units of their own length.

    Parameters
    ----------
    changes : (M, R) float
        What each client's training changed, at least one client.
    weights : (M,) float
        As they are averaged; not all zero.

    Returns
    -------
    (R,) float64
        The mean over the root mean square of their lengths: of length 1 where all move alike, near 0 where each goes
        a way of its own; zeros where nobody moves.
    """
    shares = weights / weights.sum()
    length = np.sqrt(shares @ (changes**2).sum(axis=1))
    mean = shares @ changes
    unit: FloatArray = mean / length if length > 0.0 else np.zeros_like(mean)
    return unit


def moves_on(before: FloatArray, now: FloatArray) -> bool:
    """Say whether the mean update of this round goes on where that of the round before went.

    Both are from `common_move`. As long as the model is on its way to what all clients share, the mean updates of two
    rounds point the same way. Once it is there, what is left of them is each client's own, which cancels in the mean,
    and chance, which has another direction in each round: their inner product is then about zero, or below, as steps
    too long go to and fro. The size of steps plays no part.

    Source: Pflug, Non-asymptotic confidence bounds for stochastic approximation algorithms with constant step size,
    1990, whose sign of successive gradients' inner product this is.
    Deviation: a threshold slightly above zero, in units of the clients' own updates, because the full gradients of
    many clients have little chance in them: their mean shrinks towards zero and stays on one side of it.
    """
    return bool(before @ now >= STILL)
