"""Linear algebra of moment descent: sizes of moments, bases of their leading directions, groups of estimates."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.sparse.linalg import LinearOperator, svds
from scipy.spatial.distance import pdist

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import canonical, cut
from florets.strategies.core.outliers import LEAST_CLIENTS, UPDATE_FACTOR, lower_median
from florets.strategies.two_phase.messages import LocalFactors
from florets.task.device import one_thread

MOMENT_FACTOR = UPDATE_FACTOR**2
"""Multiple of the median client's moments above which moments are outliers: gradients all over 1000 times as large.

In an orthogonal iteration it can be fewer: after its first step bases lean towards a client of large gradients.
"""


def outlier_moments(sizes: FloatArray, scale: float) -> tuple[BoolArray, float]:
    """Return the mask (M,) of sizes above `MOMENT_FACTOR` times the reference, the largest median of the run so far.

    Moments shrink as anchors approach the models of most clients; the other clients' must not become outliers by
    that.
    """
    if len(sizes) < LEAST_CLIENTS:
        return np.zeros(len(sizes), dtype=bool), scale
    scale = max(scale, lower_median(sizes))
    mask: BoolArray = (sizes > MOMENT_FACTOR * scale) & (scale > 0)
    return mask, scale


def longest_columns(bases: FloatArray) -> FloatArray:
    """Return the length (A,) of each anchor's longest column of `bases` (A, R, k), the unit of `term_size`."""
    lengths: FloatArray = np.sqrt(np.square(bases).sum(axis=1).max(axis=1, initial=0.0))
    return lengths


def term_size(term: NDArray[np.floating], unit: FloatArray) -> float:
    """Return the size of a client's moment matrices by their products (A, R, k) with bases, in `longest_columns`."""
    largest = np.abs(term).max(axis=(1, 2), initial=0.0).astype(np.float64)
    return float((largest / np.where(unit > 0, unit, 1.0)).max(initial=0.0))


def factors_size(moments: NDArray[np.floating]) -> float:
    """Return a bound on the size of a client's moment matrices, from its examples' moments (A, p, R).

    At the anchor where it is largest, the mean over the pairs of the product of their gradients' lengths.
    """
    lengths, count = np.sqrt(np.einsum("apr,apr->ap", moments, moments, dtype=np.float64)), moments.shape[1]
    # Rounding can leave the difference of equal sums a little below zero.
    pairs = np.maximum(lengths.sum(axis=1) * lengths.sum(axis=1) - (lengths * lengths).sum(axis=1), 0.0)
    return float(pairs.max(initial=0.0) / (count * (count - 1)))


_DENSE = 128
"""Up to this size the matrix itself is formed: it is small, and the exact decomposition is as fast."""


def orthonormal_columns(stack: FloatArray) -> FloatArray:
    """Return the Q (A, R, rank) of a QR decomposition of each matrix of the stack.

    Source: mixed regression, Alg. 3, l. 9.
    """
    with one_thread():
        bases: FloatArray = np.linalg.qr(stack)[0]
    return bases


def leading_bases(
    clients: Sequence[LocalFactors], weights: FloatArray, rank: int, rng: np.random.Generator
) -> FloatArray:
    """Return the first left singular vectors (A, R, rank) of each anchor's weighted mean of moment matrices.

    A client's matrix is, with s the sum of its moments m_j, (s s^T - sum_j m_j m_j^T) / (p (p - 1)).

    Source: mixed regression, Phase 1, l. 9, by direct singular value decomposition as in its experiments (Sec. V).
    """
    bases = []
    shares = weights / weights.sum()
    for anchor in range(len(clients[0].moments)):
        parts = [_rows(local, anchor, share) for local, share in zip(clients, shares, strict=True)]
        rows, coefficients = (np.concatenate(part) for part in zip(*parts, strict=True))
        with one_thread():
            bases.append(_left_vectors(rows, coefficients, rank, rng))
    return np.stack(bases)


def _rows(local: LocalFactors, anchor: int, share: float) -> tuple[FloatArray, FloatArray]:
    moments = np.asarray(local.moments[anchor], dtype=np.float64)
    count = len(moments)
    signs = np.append(1.0, np.full(count, -1.0))
    return np.vstack([moments.sum(axis=0), moments]), signs * share / (count * (count - 1))


def _left_vectors(rows: FloatArray, coefficients: FloatArray, rank: int, rng: np.random.Generator) -> FloatArray:
    """Return the first left singular vectors (R, rank) of sum_p c_p r_p r_p^T."""
    size = rows.shape[1]
    start: FloatArray = rng.standard_normal((size,))
    if size <= max(_DENSE, rank):
        dense: FloatArray = np.linalg.svd((rows.T * coefficients) @ rows)[0][:, :rank]
        return dense

    def product(vector: FloatArray) -> FloatArray:
        found: FloatArray = rows.T @ (coefficients * (rows @ vector.ravel()))
        return found

    operator = LinearOperator((size, size), matvec=product, rmatvec=product, dtype=np.float64)
    if not operator.rmatvec(operator.matvec(start)).any():
        # All directions are alike, and the solver refuses a start vector that the matrix takes to zero.
        any_basis: FloatArray = orthonormal_columns(rng.standard_normal((size, rank)))
        return any_basis
    vectors, values, _ = svds(operator, k=rank, v0=start)
    # svds returns them in rising order; where the matrix has a lower rank, the rest is noise of a null space.
    leading: FloatArray = np.ascontiguousarray(vectors[:, np.argsort(values)[::-1]])
    return leading


def num_anchors(num_clusters: int) -> int:
    """Return ceil(3 k ln k), and at least k: so many clients drawn at random miss a cluster rarely.

    Source: mixed regression, Sec. V. Deviation: the formula gives none for k = 1.
    """
    return max(num_clusters, math.ceil(3 * num_clusters * math.log(num_clusters)))


def group_exactly(estimates: FloatArray, num_groups: int) -> IntArray:
    """Group estimates (A, R) into exactly `num_groups` by average linkage; numbered by first appearance.

    Deviation: the paper joins anchors closer than half of the true models' least distance, which nobody knows. On its
    own settings both give the same groups.
    """
    if len(estimates) == 1:
        return np.zeros(1, dtype=np.int64)
    return canonical(cut(linkage(pdist(estimates), method="average"), num_groups))


def centres(estimates: FloatArray, groups: IntArray, bank: FloatArray) -> FloatArray:
    """Return the mean (K, R) of each group's estimates (A, R); a model without any is that of `bank`."""
    result = np.array(bank, dtype=np.float64)
    for group in range(len(bank)):
        members = estimates[groups == group]
        if len(members):
            result[group] = members.mean(axis=0)
    return result
