"""A client's part in phase 1 of mixed regression: its moment matrices, applied to thin matrices or as factors.

Y = mean over pairs (j, l) of the client's examples of e_j e_l^T, e_j the moment of example j at an anchor's estimate.
It is R x R and never formed: memory grows with R times the rank asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from florets.task.statistics.sample_gradients import LARGEST_BLOCK, Float32, sample_moments

Float64 = NDArray[np.float64]
Pairing = Literal["all", "halves", "single"]

_MOST_ROWS = 500


@dataclass(frozen=True)
class LocalMoments:
    """One client's examples and the moments on them.

    Parameters
    ----------
    module, x, y, loss
        See `sample_moments`; at least two examples.
    pairing
        ``all``: all ordered pairs of different examples. ``halves``: every pair of an example of the first half and
        one of the second, which is the product of the halves' means. ``single``: examples 0 and 1 only.

    Raises
    ------
    ValueError
        If there are fewer than two examples, or `pairing` is another word.

    Source: mixed regression, Sec. III-A (one pair a client) and Alg. 3 (n_i pairs).
    Deviation: ``all`` and ``halves`` use an example in several pairs; the paper's pairs are disjoint.
    """

    module: nn.Module
    x: Tensor
    y: Tensor
    loss: str
    pairing: Pairing

    def __post_init__(self) -> None:
        """Check what the arithmetic takes for granted."""
        if self.pairing not in ("all", "halves", "single"):
            raise ValueError(f"pairing={self.pairing!r} must be all, halves or single.")
        if len(self.x) < 2:
            raise ValueError(f"this client has {len(self.x)} example: a moment matrix needs pairs of two.")

    def at(self, estimates: Float32, rows: slice = slice(None)) -> Float32:
        """Return the moments (A, r, R) of some examples."""
        return sample_moments(self.module, estimates, self.x[rows], self.y[rows], self.loss)

    def term(self, left: Float32, right: Float32 | None, bases: Float32, transposed: bool) -> Float32:
        """Return Y Q, or Y^T Q, for each anchor.

        Parameters
        ----------
        left, right
            float32 (A, R): estimates at which the first and the second example of a pair is taken; `right` None: the
            same.
        bases
            float32 (A, R, k), the Q of each anchor.
        transposed
            Y^T in place of Y.

        Returns
        -------
        ndarray
            float32 (A, R, k)

        Source: mixed regression, Alg. 3, l. 5 and 8.
        """
        terms = np.empty(bases.shape, dtype=np.float32)
        for part in self._anchor_blocks(*left.shape):
            other = None if right is None else right[part]
            if self.pairing == "all":
                sides = (left[part], other) if not transposed or other is None else (other, left[part])
                terms[part] = self._all_pairs(*sides, bases[part])
            else:
                one, two = self._pair_means(left[part], other)
                if transposed:
                    one, two = two, one
                terms[part] = one[:, :, np.newaxis] * (two[:, np.newaxis, :] @ bases[part])
        return terms

    def factors(self, left: Float32, right: Float32 | None) -> tuple[Float32, Float32 | None]:
        """Return the factors of the moment matrices, as `direct` mode sends them.

        Returns
        -------
        tuple
            All pairs: every moment (A, n, R) at `left`, and at `right` unless it is None. Otherwise the two vectors
            (A, 1, R) each.
        """
        if self.pairing == "all":
            return self.at(left), None if right is None else self.at(right)
        one, two = self._pair_means(left, right)
        return one[:, np.newaxis], two[:, np.newaxis]

    def projected(self, estimate: Float32, basis: Float32) -> Float64:
        """Return the moments (n, k) at one estimate (R,), projected on a basis (R, k)."""
        parts = [self.at(estimate[np.newaxis], rows)[0] @ basis for rows in self._row_blocks(len(estimate))]
        return np.concatenate(parts).astype(np.float64)

    def _all_pairs(self, outer: Float32, inner: Float32 | None, bases: Float32) -> Float32:
        # (s_a (s_b^T Q) - A^T (B Q)) / (n (n - 1)): all ordered pairs less those of an example with itself.
        count = len(self.x)
        # In float32, as they are sent: the moments' own noise is larger than its rounding by orders of magnitude.
        outer_sum = np.zeros_like(outer)
        inner_sum = outer_sum if inner is None else np.zeros_like(outer)
        # Transposed, (A, k, R): long rows are what NumPy is fast on.
        products = np.zeros((len(bases), bases.shape[2], bases.shape[1]), dtype=np.float32)
        for rows in self._row_blocks(outer.size):
            a = self.at(outer, rows)
            b = a if inner is None else self.at(inner, rows)
            outer_sum += a.sum(axis=1)
            if inner is not None:
                inner_sum += b.sum(axis=1)
            products += (b @ bases).transpose(0, 2, 1) @ a
        pairs: Float32 = (inner_sum[:, np.newaxis, :] @ bases).transpose(0, 2, 1) * outer_sum[:, np.newaxis, :]
        pairs -= products
        pairs /= np.float32(count * (count - 1))
        return pairs.transpose(0, 2, 1)

    def _pair_means(self, left: Float32, right: Float32 | None) -> tuple[Float32, Float32]:
        half = 1 if self.pairing == "single" else len(self.x) // 2
        end = 2 if self.pairing == "single" else len(self.x)
        return self._mean(left, 0, half), self._mean(left if right is None else right, half, end)

    def _mean(self, estimates: Float32, begin: int, end: int) -> Float32:
        total = np.zeros_like(estimates)
        for rows in self._row_blocks(estimates.size, begin, end):
            total += self.at(estimates, rows).sum(axis=1)
        return total / np.float32(end - begin)

    def _anchor_blocks(self, num_anchors: int, size: int) -> Iterator[slice]:
        step = max(1, LARGEST_BLOCK // (size * min(len(self.x), _MOST_ROWS)))
        return (slice(start, start + step) for start in range(0, num_anchors, step))

    def _row_blocks(self, width: int, begin: int = 0, end: int | None = None) -> Iterator[slice]:
        end = len(self.x) if end is None else end
        step = min(_MOST_ROWS, max(1, LARGEST_BLOCK // width))
        return (slice(start, min(start + step, end)) for start in range(begin, end, step))
