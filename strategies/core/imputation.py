"""Imputation of missing profile blocks: the mean of a block over the clients like this one."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.core import BoolArray, FloatArray

NEIGHBOURS = 3


def relative_distances(grams: Sequence[FloatArray], has: BoolArray) -> FloatArray:
    """Return how far clients are from each other in the blocks that both have.

    Parameters
    ----------
    grams : K arrays (M, M) of float64
        Inner products of the clients' vectors, block by block.
    has : (M, K) bool
        Which client has which block.

    Returns
    -------
    (M, M) float64
        Sum of |g_i - g_j|^2 over the common blocks, divided by that of |g_i|^2 + |g_j|^2: from 0 to 2, so that pairs
        with other blocks in common can be compared. Infinite without a common block, and on the diagonal.
    """
    apart, size = np.zeros((2, len(has), len(has)))
    for gram, own in zip(grams, has.T, strict=True):
        both = np.outer(own, own)
        squares = np.diag(gram)[:, np.newaxis] + np.diag(gram)
        # Rounding can leave the distance of equal vectors a little below zero.
        apart += np.where(both, np.maximum(squares - 2 * gram, 0.0), 0.0)
        size += np.where(both, squares, 0.0)
    common = has.astype(np.float64) @ has.T.astype(np.float64) > 0
    np.fill_diagonal(common, False)
    distances: FloatArray = np.where(common, apart / np.where(size > 0, size, 1.0), np.inf)
    return distances


def mixing(distances: FloatArray, has: BoolArray) -> FloatArray:
    """Return whose vectors of one block make each client's: its own, or the mean of the nearest that have one.

    Parameters
    ----------
    distances : (M, M) float64
        From `relative_distances`.
    has : (M,) bool
        Which clients have the block, at least one.

    Returns
    -------
    (M, M) float64
        Rows that sum to 1. A client that lacks the block gets the mean of the `NEIGHBOURS` nearest clients that have
        it, of equally near ones the first; one that nobody can be compared with, the mean of all that have it.

    Notes
    -----
    Of three strangers one may be of another cluster, but the noise of a single one misleads more: of 40 clients in 4
    groups, of whom a fifth at random misses each of 4 blocks of d = 500 entries, and with noise of three times the
    groups' distance, the ARI is 0.96 with three neighbours, 0.42 with one and 0.58 with the mean of all (means of ten
    draws). It depends on d: at 5000 it is at least 0.93 with each, at 50 at most 0.15.
    """
    rows = np.eye(len(has))
    for client in np.flatnonzero(~has):
        to_those = np.where(has, distances[client], np.inf)
        nearest = np.argsort(to_those, kind="stable")[:NEIGHBOURS]
        nearest = nearest[np.isfinite(to_those[nearest])]
        if len(nearest):
            rows[client] = 0.0
            rows[client, nearest] = 1.0 / len(nearest)
        else:
            rows[client] = has / has.sum()
    return rows
