"""FedSoft's importance weights: of centres for a client, and of clients for a centre."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray


def importance(counts: IntArray, smoothing: float) -> FloatArray:
    """Return the importance weights u (K,) of the centres for one client.

    Parameters
    ----------
    counts : (K,) int64
        For how many of its samples each centre has the least loss; at least one is above 0.
    smoothing
        sigma, in place of 0, so that every client may be drawn by every centre. The sum is then a little above 1.

    Source: Ruan and Joe-Wong 2022 (FedSoft), Eq. (4), sigma as in the released code.
    """
    shares = counts / counts.sum()
    weights: FloatArray = np.where(counts == 0, smoothing, shares)
    return weights


def aggregation_weights(importances: FloatArray, examples: FloatArray) -> FloatArray:
    """Return the weights v (P, K) of the clients in each centre, columns of sum 1: proportional to u_ik n_i."""
    products = importances * examples[:, np.newaxis]
    weights: FloatArray = products / products.sum(axis=0)
    return weights


def draw_clients(weights: FloatArray, size: int, rng: np.random.Generator) -> list[IntArray]:
    """Return, for each centre, the rows of the clients that it draws: `size` without replacement, sorted.

    Parameters
    ----------
    weights : (P, K) float64
        See `aggregation_weights`. Where there are no more clients than are to be drawn, all are.
    """
    count = len(weights)
    if size >= count:
        return [np.arange(count) for _ in weights.T]
    return [np.sort(rng.choice(count, size=size, replace=False, p=column)) for column in weights.T]
