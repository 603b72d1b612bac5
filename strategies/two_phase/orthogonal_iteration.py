"""The leading subspace of a sum of the clients' moment matrices, which are formed only where they are small.

Every anchor a has a matrix Y_a = sum_i w_i Y_ia (R x R) over the clients i. The server sees either its products with
thin matrices (orthogonal iteration) or its factors (direct), and wants the span of the first singular vectors. From
factors Y_a itself is formed for R <= 128; for larger R memory grows with R alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, svds

from florets.strategies.core import FloatArray
from florets.strategies.core.threads import one_thread

_DENSE = 128
"""Up to this size the matrix itself is formed: it is small, and the exact decomposition is as fast."""


@dataclass(frozen=True)
class Factors:
    """One client's moment matrices as sums of outer products, for A anchors.

    Attributes
    ----------
    left, right
        (A, p, R) each.
    all_pairs
        True: Y = (s_l s_r^T - sum_j l_j r_j^T) / (p (p - 1)) with s the sums over j, the mean over all ordered pairs
        of different examples. False: Y = l_1 r_1^T, and p is 1.
    """

    left: FloatArray
    right: FloatArray
    all_pairs: bool


def random_bases(num_anchors: int, size: int, rank: int, rng: np.random.Generator) -> FloatArray:
    """Return random bases (A, R, rank) with orthonormal columns.

    Source: mixed regression, Alg. 3, l. 1.
    """
    return orthonormal_columns(rng.standard_normal((num_anchors, size, rank)))


def weighted_mean(terms: Iterable[NDArray[np.floating]], weights: FloatArray) -> FloatArray:
    """Return the weighted mean (A, R, rank) of the clients' terms, summed in float64 in the order in which they come.

    Source: mixed regression, Alg. 3, l. 6 and 9.
    """
    total: FloatArray | None = None
    for term, weight in zip(terms, weights / weights.sum(), strict=True):
        total = weight * np.asarray(term, dtype=np.float64) if total is None else total + weight * term
    if total is None:
        raise ValueError("no client's term came: there is nothing to average.")
    return total


def orthonormal_columns(stack: FloatArray) -> FloatArray:
    """Return the Q (A, R, rank) of a QR decomposition of each matrix of the stack.

    Source: mixed regression, Alg. 3, l. 9.
    """
    with one_thread():
        bases: FloatArray = np.linalg.qr(stack)[0]
    return bases


def leading_bases(clients: list[Factors], weights: FloatArray, rank: int, rng: np.random.Generator) -> FloatArray:
    """Return the first left singular vectors (A, R, rank) of each anchor's weighted mean of moment matrices.

    Parameters
    ----------
    clients
        In the order of the client keys, at least one.
    weights : (m,) float64
    rank : int
        Vectors wanted, at most R.
    rng
        Start vectors of the sparse solver; the bases of matrices that are zero.

    Source: mixed regression, Phase 1, l. 9, by direct singular value decomposition as in its experiments (Sec. V).
    """
    bases = []
    shares = weights / weights.sum()
    for anchor in range(len(clients[0].left)):
        rows = [_rows(factors, anchor, share) for factors, share in zip(clients, shares, strict=True)]
        left, right, coefficients = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        with one_thread():
            bases.append(_left_vectors(left, right, coefficients, rank, rng))
    return np.stack(bases)


def _rows(factors: Factors, anchor: int, share: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    left, right = (np.asarray(side[anchor], dtype=np.float64) for side in (factors.left, factors.right))
    if not factors.all_pairs:
        return left, right, np.full(len(left), share)
    count = len(left)
    signs = np.append(1.0, np.full(count, -1.0))
    sums = [np.vstack([side.sum(axis=0), side]) for side in (left, right)]
    return sums[0], sums[1], signs * share / (count * (count - 1))


def _left_vectors(
    left: FloatArray, right: FloatArray, coefficients: FloatArray, rank: int, rng: np.random.Generator
) -> FloatArray:
    """Return the first left singular vectors (R, rank) of sum_p c_p l_p r_p^T."""
    size = left.shape[1]
    start: FloatArray = rng.standard_normal((size,))
    if size <= max(_DENSE, rank):
        dense: FloatArray = np.linalg.svd((left.T * coefficients) @ right)[0][:, :rank]
        return dense
    operator = LinearOperator(
        (size, size),
        matvec=lambda vector: left.T @ (coefficients * (right @ vector.ravel())),
        rmatvec=lambda vector: right.T @ (coefficients * (left @ vector.ravel())),
        dtype=np.float64,
    )
    if not operator.rmatvec(operator.matvec(start)).any():
        # All directions are alike, and the solver refuses a start vector that the matrix takes to zero.
        any_basis: FloatArray = random_bases(1, size, rank, rng)[0]
        return any_basis
    vectors, values, _ = svds(operator, k=rank, v0=start)
    # svds returns them in rising order; where the matrix has a lower rank, the rest is noise of a null space.
    leading: FloatArray = np.ascontiguousarray(vectors[:, np.argsort(values)[::-1]])
    return leading
