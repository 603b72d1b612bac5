"""Outliers among moments: they are products of gradients, and have a bound of their own."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.outliers import LEAST_CLIENTS, UPDATE_FACTOR, lower_median

MOMENT_FACTOR = UPDATE_FACTOR**2
"""Multiple of the median client's moments above which moments are outliers: gradients all over 1000 times as large.

In an orthogonal iteration it can be fewer. After its first step the bases lean towards a client of large gradients,
and show less of the others' moments. Of 20 clients with one random gradient each (k = 3, T1 = 4) one of 100 times as
large gradients was refused for R = 20,000, of 200 times for R = 2000 and of 500 times for R = 100; where half of
each gradient was common to all, none of up to 500 times.
"""


@dataclass
class MomentScale:
    """The size of the median client's moments, the reference for outliers.

    It is the largest of the run so far: moments shrink as anchors come near the models of most clients, and the
    moments of the others, which do not shrink, must not become outliers by that.
    """

    value: float = 0.0

    def judge(self, sizes: FloatArray, factor: float = MOMENT_FACTOR) -> BoolArray:
        """Raise the reference to one exchange's median; return the mask (M,) of sizes above `factor` times it.

        Parameters
        ----------
        sizes : (M,) float
            Each client's `term_size` or `factors_size`, finite; of fewer than three clients none is an outlier.
        factor : float
            How many times is too much, at least 1.
        """
        if len(sizes) < LEAST_CLIENTS:
            return np.zeros(len(sizes), dtype=bool)
        self.value = max(self.value, lower_median(sizes))
        mask: BoolArray = sizes > factor * self.value
        return mask & (self.value > 0)


def longest_columns(bases: FloatArray) -> FloatArray:
    """Return the length (A,) of each anchor's longest column of `bases` (A, R, k), the unit of `term_size`."""
    lengths: FloatArray = np.sqrt(np.square(bases).sum(axis=1).max(axis=1, initial=0.0))
    return lengths


def term_size(term: NDArray[np.floating], unit: FloatArray) -> float:
    """Return the size of a client's moment matrices, as far as its products with bases show it.

    Parameters
    ----------
    term : (A, R, k) float
        The products, finite.
    unit : (A,) float
        `longest_columns` of the bases that were multiplied, so that the sizes of all steps of an orthogonal iteration
        can be compared: only every second one starts from orthonormal columns.
    """
    largest = np.abs(term).max(axis=(1, 2), initial=0.0).astype(np.float64)
    return float((largest / np.where(unit > 0, unit, 1.0)).max(initial=0.0))


def factors_size(left: NDArray[np.floating], right: NDArray[np.floating], all_pairs: bool) -> float:
    """Return a bound on the size of a client's moment matrices, from their factors.

    Parameters
    ----------
    left, right : (A, p, R) float
        Gradients of p examples at each anchor, finite.
    all_pairs : bool
        Whether the matrix is the mean over all ordered pairs of different examples; else p is 1, left times right.

    Returns
    -------
    float
        At the anchor where it is largest, the mean over the pairs of the product of their gradients' lengths. One
        gradient of heavy-tailed data counts only as far as it weighs in the matrix, and not by its square.
    """
    one, other = (np.sqrt(np.einsum("apr,apr->ap", side, side, dtype=np.float64)) for side in (left, right))
    same, pairs = (one * other).sum(axis=1), left.shape[1]
    if all_pairs:
        # Rounding can leave the difference of equal sums a little below zero.
        same = np.maximum(one.sum(axis=1) * other.sum(axis=1) - same, 0.0)
        pairs *= pairs - 1
    return float(same.max(initial=0.0) / pairs)
