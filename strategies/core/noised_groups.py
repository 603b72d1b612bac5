"""Groups of clients under differential privacy, from noised sums over their rows on two folds, or over their losses.

Sums of products of two rows, whose noise is independent, have eigenvectors along which groups differ; in these
coordinates the mean, second and third moments determine K centres.
"""

from collections.abc import Callable

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.placement import unit
from florets.strategies.core.robust import clip_factors

PARTS = 10
"""Parts of the budget for grouping, which the releases of `noised_groups` share."""
_MEAN, _SPREAD, _SKEW = 2, 5, 3
_STARTS, _STEPS = 8, 30

Release = Callable[[FloatArray, float, int], FloatArray]
"""Returns a sum that one client changes by at most a norm with noise; it costs some of the `PARTS`."""


def noised_groups(rows: FloatArray, k: int, rng: np.random.Generator, released: Release) -> IntArray:
    """Return the group (M,) of each client; it depends on the others' rows through the released sums alone.

    `rows` (M, 2, D) are two for each client, 0 where it has none, so that a client changes each sum by a norm of at
    most 1.
    """
    rows, (count, _, width) = unit(rows), rows.shape
    # Two centres need no third moment.
    spread, skew = (_SPREAD + _SKEW, 0) if k == 2 else (_SPREAD, _SKEW)
    origin = released(rows.mean(axis=1).sum(axis=0), 1.0, _MEAN) / count
    rest = unit(np.where(rows.any(axis=2, keepdims=True), rows - origin, 0.0))
    products = released(rest[:, 0].T @ rest[:, 1], 1.0, spread)
    values, axes = np.linalg.eigh((products + products.T) / 2)
    dimensions = min(k - 1, width)
    points = (rest @ axes[:, ::-1][:, :dimensions]).mean(axis=1)
    moments = np.maximum(values[::-1][:dimensions], np.finfo(np.float64).eps) / count
    third = np.einsum("ia,ib,ic->abc", points, points, points)
    third = released(third, 1.0, skew) / count if skew else np.zeros(third.shape)
    return nearest_centre(points, centres_of(moments, third, rng))


def centres_of(moments: FloatArray, third: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return K centres (K, K - 1) from second moments (K - 1,) of uncorrelated centred points, and third ones.

    With a coordinate 1 in front and scaled to unit moments, the centres, times the roots of their weights, are
    orthonormal, and maximise the sum of the third moments along them.

    Source: Anandkumar et al. 2014, Tensor decompositions for learning latent variable models, section 4.3; without
    its deflation, all components at once.
    """
    scale = np.sqrt(moments)
    count = len(scale) + 1
    tensor = np.zeros((count,) * 3)
    tensor[0] = np.eye(count)
    tensor[:, 0] = tensor[:, :, 0] = np.eye(count)
    symmetric = sum(
        third.transpose(order) for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    )
    tensor[1:, 1:, 1:] = symmetric / 6 / np.einsum("a,b,c->abc", scale, scale, scale)
    best, most = np.eye(count), -np.inf
    for _ in range(_STARTS):
        basis = np.linalg.qr(rng.normal(size=(count, count)))[0]
        for _ in range(_STEPS):
            left, _, right = np.linalg.svd(np.einsum("abc,bk,ck->ak", tensor, basis, basis))
            basis = left @ right
        value = float(np.einsum("abc,ak,bk,ck->", tensor, basis, basis, basis))
        if value > most:
            best, most = basis, value
    # A group of less than 4 % of the clients would be placed too far out by a small error of its weight.
    roots = np.maximum(np.abs(best[0]), 0.2)
    centres: FloatArray = (best[1:] * np.sign(best[0])).T * scale / roots[:, np.newaxis]
    return centres


COST = 2
"""Releases that the sum of `noised_centres` costs as much as."""
RESIDUAL = 0.2
"""Largest norm of a loss vector less its own mean, in the largest norm of a loss vector."""


def noised_centres(
    vectors: FloatArray, count: int, norm: float, noised: Callable[[FloatArray, float], FloatArray]
) -> FloatArray:
    """Return the centres (K, D) of `count` clusters of centred loss vectors (M, D), of a norm of at most `norm`.

    Each vector's own mean is taken off: nearest to centre k are those that model k fits best compared with the mean
    client, so that a model that noise has made worse for everybody is not left to nobody.
    """
    # More steps of k-means by noised sums and sizes (Blum et al. 2005) gave worse groups: ARI 0.16 against 0.67.
    bound = norm * RESIDUAL
    residuals = vectors - vectors.mean(axis=1, keepdims=True)
    residuals *= clip_factors(np.linalg.norm(residuals, axis=1, keepdims=True), bound)
    mean: FloatArray = noised(residuals.sum(axis=0), bound) / len(vectors)
    centres: FloatArray = mean - np.eye(count, len(mean))
    return centres


def nearest_centre(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the nearest centre (K, D) of each vector (M, D); the lowest among equals."""
    nearest: IntArray = np.square(vectors[:, np.newaxis] - centres).sum(axis=2).argmin(axis=1)
    return nearest
