"""Clusters of loss vectors that are seen through one noised sum."""

from collections.abc import Callable

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.robust import clip_factors

NoisedSum = Callable[[FloatArray, float], FloatArray]
"""Adds noise to a sum over clients, each of which adds an array of at most the given norm."""

COST = 2
"""Releases that the sum costs as much as."""
RESIDUAL = 0.2
"""Largest norm of a loss vector less its own mean, in the largest norm of a loss vector."""


def noised_centres(vectors: FloatArray, count: int, norm: float, noised: NoisedSum) -> FloatArray:
    """Return the centres (K, D) of `count` clusters of centred loss vectors (M, D), of a norm of at most `norm`.

    How hard a client's data are is no matter of groups: each vector's own mean is taken off. Of what is left, nearest
    to centre k are the vectors that model k fits best compared with the mean client. A model that noise has made
    worse for everybody, or that all groups find best, is so not left to nobody or chosen by all.

    More steps of k-means by noised sums and sizes (Blum et al. 2005, SuLQ) gave worse groups: rotated digits, 100
    clients, epsilon 8, ARI 0.16 against 0.67.
    """
    bound = norm * RESIDUAL
    residuals = vectors - vectors.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
    residuals *= clip_factors(lengths, bound)
    mean: FloatArray = noised(residuals.sum(axis=0), bound) / len(vectors)
    centres: FloatArray = mean - np.eye(count, len(mean))
    return centres


def nearest_centre(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the nearest centre (K, D) of each vector (M, D); the lowest among equals."""
    nearest: IntArray = np.square(vectors[:, np.newaxis] - centres).sum(axis=2).argmin(axis=1)
    return nearest
