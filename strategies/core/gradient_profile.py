"""The gradient profile: what every client's gradients on every model were, averaged over time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.imputation import mixing, relative_distances
from florets.strategies.core.threads import one_thread

LARGEST = 1e18
"""Entries are cut off here, so that neither a running mean in float32 nor a product in float64 can overflow."""

CHUNK_ENTRIES = 2**18
"""Entries of the profile that are turned into float64 at a time: 2 MB, which a processor's cache holds."""


@dataclass
class GradientProfile:
    """K blocks of one vector a client, and the inner products of the clients' vectors.

    Block k holds each client's running mean of its gradients (or model changes) on model k. The profile G of the
    paper, (K d, M), is never formed: its singular values and right singular vectors follow from the Gram matrix
    G^T G, which is the sum of the blocks' own. Only the block that was refreshed is multiplied out again.

    Attributes
    ----------
    blocks
        K arrays (M, d) of float32; rows that were never refreshed are zero. No array is ever changed in place, so
        that a copy of the profile costs nothing.
    grams
        The blocks' own inner products, K arrays (M, M) of float64.
    counts
        How often each block of each client was refreshed, (M, K).
    running_mean
        False keeps the last vector in place of the mean (beta = 1).

    Source: CFL-GP Alg. 1, l. 8, 9 and 12; App. F.1 (beta = 1).
    Deviation: the factor of the running mean is 1/(n + 1) at a block's (n + 1)-th refresh, counted for each client
    and block. With all clients in every round and P of at least 2 it is the paper's beta_t, with t/(K P) rounded
    down; with P = 1 that gives the last block 1/(n + 2), and so never its whole first vector.
    """

    blocks: list[NDArray[np.float32]]
    grams: list[FloatArray]
    counts: IntArray
    running_mean: bool = True

    @classmethod
    def empty(cls, num_blocks: int, length: int, running_mean: bool = True) -> "GradientProfile":
        """Return the profile of no clients: K blocks, at least one, of vectors with `length` entries."""
        return cls(
            [np.zeros((0, length), dtype=np.float32) for _ in range(num_blocks)],
            [np.zeros((0, 0)) for _ in range(num_blocks)],
            np.zeros((0, num_blocks), dtype=np.int64),
            running_mean,
        )

    def __deepcopy__(self, memo: dict[int, object]) -> "GradientProfile":
        return GradientProfile(list(self.blocks), list(self.grams), self.counts, self.running_mean)

    @property
    def known(self) -> BoolArray:
        """Which clients have at least one refreshed block, (M,)."""
        return np.asarray(self.counts.any(axis=1))

    def add_clients(self, number: int) -> None:
        """Append rows for `number` clients about whom nothing is known yet."""
        if number == 0:
            return
        self.blocks = [np.pad(block, ((0, number), (0, 0))) for block in self.blocks]
        self.grams = [np.pad(gram, (0, number)) for gram in self.grams]
        self.counts = np.pad(self.counts, ((0, number), (0, 0)))

    def refresh(self, index: int, rows: IntArray, vectors: Sequence[NDArray[np.floating]]) -> None:
        """Take new vectors of some clients into block `index`; the other clients keep theirs.

        Parameters
        ----------
        index : int
            The block, from 0.
        rows : (m,) int64
            The clients, all different.
        vectors : m arrays (d,) of float
            Their vectors, in that order. Finite; entries beyond 1e18 are cut off there.
        """
        block, counts = self.blocks[index].copy(), self.counts.copy()
        # Row by row: with a hundred thousand parameters the whole block would leave the cache at every step.
        for row, vector in zip(rows, vectors, strict=True):
            fresh = np.clip(vector, -LARGEST, LARGEST).astype(np.float32, copy=False)
            if self.running_mean:
                fresh -= block[row]
                fresh *= np.float32(1.0 / (counts[row, index] + 1))
                block[row] += fresh
            else:
                block[row] = fresh
        counts[rows, index] += 1
        products = _products(block, rows)
        gram = self.grams[index].copy()
        gram[rows] = products
        gram[:, rows] = products.T
        self.blocks[index], self.grams[index], self.counts = block, gram, counts

    def gram(self, rows: IntArray) -> FloatArray:
        """Return the inner products of some clients' vectors over all blocks.

        A block that a client lacks counts as the mean of the clients that have it and are most like this one in the
        blocks that both have; see `imputation.mixing`.

        Parameters
        ----------
        rows : (m,) int64
            The clients, in the order in which they are wanted.

        Returns
        -------
        (m, m) float64
            Symmetric, positive semidefinite.

        Notes
        -----
        Deviation: the paper's clients all take part in every round, and its profile starts from zeros. With zeros
        clients are told apart by when they took part, and with the mean of all clients, which says nothing of a
        client, one that lacks several blocks comes to lie between the groups and joins a wrong one.
        """
        total = np.zeros((len(rows), len(rows)))
        has = self.counts > 0
        lacking = np.asarray(has.any(axis=0) & ~has[rows].all(axis=0))
        distances = relative_distances(self.grams, has) if lacking.any() else total
        for gram, own, is_lacking in zip(self.grams, has.T, lacking, strict=True):
            if is_lacking:
                # Most rows have one to three entries, and all this is M^2 work in place of M^3.
                share = csr_array(mixing(distances, own)[rows])
                total += np.asarray(share @ gram @ share.T)
            elif own.any():
                total += gram[np.ix_(rows, rows)]
        return total


def _products(block: NDArray[np.float32], rows: IntArray) -> FloatArray:
    """Return the inner products (m, M) of the vectors `rows` of a block (M, d) with all, in float64."""
    products = np.zeros((len(rows), len(block)))
    everybody = np.array_equal(rows, np.arange(len(block)))
    width = max(CHUNK_ENTRIES // max(len(block), 1), 1)
    with one_thread():
        for start in range(0, block.shape[1], width):
            part = block[:, start : start + width].astype(np.float64)
            # A matrix times its own transpose takes half the work, and NumPy sees that it is one.
            products += part @ part.T if everybody else part[rows] @ part.T
    return products
