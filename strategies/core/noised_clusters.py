"""k-means that sees vectors through noised sums alone."""

from collections.abc import Callable

import numpy as np

from florets.strategies.core import FloatArray, IntArray

NoisedSum = Callable[[FloatArray, float], FloatArray]
"""Adds noise to a sum over clients, each of which adds an array of at most the given norm."""

RESIDUAL = 0.2
"""Largest residual, in the norm of a vector."""
STEPS = 3
"""Noised sums that a clustering takes: the mean, and two steps of Lloyd's iteration."""


def noised_centres(vectors: FloatArray, count: int, norm: float, noised: NoisedSum, least: float) -> FloatArray:
    """Return the centres (K, D) of `count` clusters of centred loss vectors (M, D), of a norm of at most `norm`.

    Vectors become residuals from the noised mean, shortened to a fifth of the norm. Cluster k begins as those that
    model k fits best, compared with the mean client; it then moves twice to the noised mean of those nearest to it.
    A cluster of fewer than `least` clients, by its noised size, stays where it is.

    Source: Blum et al. 2005 (SuLQ k-means), and Su et al. 2016 on sums and sizes with one budget.
    """
    size, width = vectors.shape
    mean: FloatArray = noised(vectors.sum(axis=0), norm) / size
    bound = norm * RESIDUAL
    residuals = vectors - mean
    lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
    residuals = residuals * np.minimum(1.0, bound / np.maximum(lengths, np.finfo(np.float64).tiny))
    labels, centres = residuals[:, :count].argmin(axis=1), np.zeros((count, width))
    for _ in range(STEPS - 1):
        # Vector and size of a client stand side by side in one array, with equal norms.
        sums = np.zeros((count, width + 1))
        np.add.at(sums, labels, np.column_stack([residuals, np.full(size, bound)]))
        found = noised(sums, np.sqrt(2) * bound)
        sizes = found[:, -1] / bound
        large = sizes >= least
        centres[large] = found[large, :-1] / sizes[large, np.newaxis]
        labels = nearest_centre(residuals, centres)
    found_centres: FloatArray = mean + centres
    return found_centres


def nearest_centre(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the nearest centre (K, D) of each vector (M, D); the lowest among equals."""
    nearest: IntArray = np.square(vectors[:, np.newaxis] - centres).sum(axis=2).argmin(axis=1)
    return nearest
