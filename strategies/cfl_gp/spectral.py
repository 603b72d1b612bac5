"""Clients' features from the inner products of their gradient profiles, and the number of clusters in them."""

import numpy as np
from scipy.linalg import eigh

from florets.strategies.core import FloatArray
from florets.strategies.core.choose_k import choose_k
from florets.strategies.core.threads import one_thread

EXACT_UP_TO = 2000
"""Clients up to which all of the Gram matrix is brought to tridiagonal form, in M^3 steps."""


def singular_values(gram: FloatArray, count: int) -> FloatArray:
    """Return the `count` largest singular values of the profile from its Gram matrix (M, M); at most M.

    Falling; accurate to about 1e-8 times the largest.
    """
    return _leading(gram, count)[0]


def spectral_features(gram: FloatArray, count: int) -> FloatArray:
    """Project every client's profile on its leading left singular directions: (M, min(count, M)).

    The projection U^T g of client i is the i-th row of (singular value * right singular vector), and both follow from
    the Gram matrix alone: M x M in place of K d x M. A column's entry of largest size is positive, because the sign
    of a singular vector is arbitrary.

    Source: CFL-GP, Sec. 3, spectral clustering, step (a).
    """
    values, vectors = _leading(gram, count)
    largest = np.argmax(np.abs(vectors), axis=0)
    signs = np.where(np.take_along_axis(vectors, largest[np.newaxis], axis=0) < 0, -1.0, 1.0)
    features: FloatArray = vectors * signs * values
    return features


def estimate_k(gram: FloatArray, k_max: int, rng: np.random.Generator) -> int:
    """Return the number of clusters that the profile shows, from 1 to `k_max`.

    First the number s of leading directions: where the singular values fall most. Then the number of clusters whose
    mean silhouette in these s dimensions is best; see `choose_k.choose_k` for small inputs.

    Source: CFL-GP, App. G.
    Deviation: s is at least 2, because the first direction is the mean gradient, by far the largest as long as models
    are far from trained, and tells few clients apart. The silhouette stands for the elbow or the gap statistic, which
    the paper names without figures: it needs no reference data and has no scale of its own.
    """
    values = singular_values(gram, k_max + 1)
    falls = values[:-1] - values[1:]
    dimensions = 2 + int(np.argmax(falls[1:])) if len(falls) > 1 else len(values)
    return choose_k(spectral_features(gram, dimensions), k_max, "silhouette", 0.0, rng)


def _leading(gram: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    size = len(gram)
    first = max(size - count, 0)
    with one_thread():
        found = _by_lanczos(gram, count) if size > EXACT_UP_TO and first else None
        eigenvalues, vectors = found or eigh(gram, subset_by_index=(first, size - 1))
    # Rounding leaves eigenvalues a little below zero where the profile has fewer directions than clients.
    return np.sqrt(np.maximum(eigenvalues[::-1], 0.0)), vectors[:, ::-1]


def _by_lanczos(gram: FloatArray, count: int) -> tuple[FloatArray, FloatArray] | None:
    """Return the largest eigenvalues, rising, and their vectors, in M^2 steps; None where they are not found so."""
    from scipy.sparse.linalg import ArpackError, eigsh

    # Any start that is not orthogonal to a vector wanted; always the same, so that equal inputs have equal outputs.
    start = np.random.default_rng(0).standard_normal(len(gram))
    try:
        values, vectors = eigsh(gram, k=count, which="LA", v0=start)
    except ArpackError:
        return None
    order = np.argsort(values)
    return values[order], vectors[:, order]
