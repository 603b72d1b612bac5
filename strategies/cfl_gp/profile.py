"""The gradient profile: all clients' gradients on all models, averaged over time, missing ones imputed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from florets.strategies.base.report import SPECTRUM
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import choose_k
from florets.task.device import one_thread

NEIGHBOURS = 3
_SHOWN = 20
"""Singular values of a round whose spectrum is kept (Fig. 19 tells of a gap behind the eighth)."""


def relative_distances(grams: Sequence[FloatArray], has: BoolArray) -> FloatArray:
    """Return how far clients are from each other, (M, M), in the blocks that both have; infinite without one.

    The sum of |g_i - g_j|^2 over the common blocks, divided by that of |g_i|^2 + |g_j|^2. `grams` are the blocks'
    inner products, `has` (M, K) says which client has which block.
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
    """Return the weights (M, M) that give each client's vector of a block: its own, or the mean of the nearest ones'.

    A client that lacks the block gets the mean of the `NEIGHBOURS` nearest that have it, `has` (M,); one that nobody
    can be compared with, the mean of all. Of 40 clients in 4 groups, of whom a fifth misses each block, with noise of
    three times the groups' distance, the ARI is 0.96 with three neighbours, 0.42 with one and 0.58 with the mean of
    all.
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


LARGEST = 1e18
"""Entries are cut off here, so that neither a running mean in float32 nor a product in float64 can overflow."""

CHUNK_ENTRIES = 2**18
"""Entries of the profile converted to float64 at a time: 2 MB, which a processor's cache holds."""


@dataclass
class GradientProfile:
    """K blocks of one vector a client, and the inner products of the clients' vectors.

    Block k holds each client's running mean of its gradients (or model changes) on model k. The profile G of the
    paper, (K d, M), is never formed: what is needed of it follows from the Gram matrix G^T G, the sum of the blocks'
    own.

    Source: CFL-GP Alg. 1, l. 8, 9 and 12; App. F.1 (beta = 1).
    Deviation: the factor of the running mean is 1/(n + 1) at a block's (n + 1)-th refresh, counted for each client
    and block. With all clients in every round and P of at least 2 it is the paper's beta_t, with t/(K P) rounded
    down.
    """

    # K arrays (M, d); rows that were never refreshed are zero. No array is ever changed in place, so that a copy of
    # the profile costs nothing.
    blocks: list[NDArray[np.float32]]
    # The blocks' own inner products, K arrays (M, M).
    grams: list[FloatArray]
    # How often each block of each client was refreshed, (M, K).
    counts: IntArray
    # False keeps the last vector in place of the mean (beta = 1).
    running_mean: bool = True
    # Row of each client, in the order in which they were first seen.
    rows: dict[str, int] = field(default_factory=dict)

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
        return GradientProfile(list(self.blocks), list(self.grams), self.counts, self.running_mean, dict(self.rows))

    def refresh(self, index: int, vectors: Mapping[str, NDArray[np.floating]]) -> None:
        """Take new vectors (d,) of clients into block `index`, entries cut off at `LARGEST`."""
        if number := len(vectors.keys() - self.rows.keys()):
            self.blocks = [np.pad(block, ((0, number), (0, 0))) for block in self.blocks]
            self.grams = [np.pad(gram, (0, number)) for gram in self.grams]
            self.counts = np.pad(self.counts, ((0, number), (0, 0)))
        for key in vectors:
            self.rows.setdefault(key, len(self.rows))
        rows = self._rows(vectors)
        block, counts = self.blocks[index].copy(), self.counts.copy()
        # Row by row: with a hundred thousand parameters the whole block would leave the cache at every step.
        for row, vector in zip(rows, vectors.values(), strict=True):
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

    def _rows(self, keys: Iterable[str]) -> IntArray:
        return np.array([self.rows[key] for key in keys], dtype=np.int64)

    def gram(self, keys: Sequence[str]) -> FloatArray:
        """Return the inner products (m, m) of some clients' vectors over all blocks, lacking ones by `mixing`.

        Deviation: the paper's clients all take part in every round, and its profile starts from zeros, which would
        tell clients apart by when they took part.
        """
        rows, total = self._rows(keys), np.zeros((len(keys), len(keys)))
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


EXACT_UP_TO = 2000
"""Clients up to which all of the Gram matrix is brought to tridiagonal form, in M^3 steps."""


def singular_values(gram: FloatArray, count: int) -> FloatArray:
    """Return the `count` largest singular values of the profile from its Gram matrix (M, M), falling; at most M."""
    return _leading(gram, count)[0]


def reported_values(gram: FloatArray, count: int, is_shown: bool) -> dict[str, list[float]]:
    """Return the singular values that a round reports: K + 1, and more where its spectrum is shown."""
    values = singular_values(gram, max(count + 1, _SHOWN if is_shown else 0)).tolist()
    return {"singular_values": values[: count + 1], **({SPECTRUM: values} if is_shown else {})}


def spectral_features(gram: FloatArray, count: int, of: BoolArray | None = None) -> FloatArray:
    """Project every client's profile on the leading left singular directions of some (`of`): (M, min(count, M)).

    Row i is that of (singular value * right singular vector), which follow from the Gram matrix alone. A column's
    entry of largest size is positive, because the sign of a singular vector is arbitrary.

    Source: CFL-GP, Sec. 3, spectral clustering, step (a).
    """
    if of is not None and not of.all():
        features = spectral_features(gram[np.ix_(of, of)], count)
        # U = G V / s of some clients' profiles G; the columns of `features` are V s.
        return np.asarray(gram[:, of] @ features / np.maximum(np.square(features).sum(axis=0), np.finfo(float).tiny))
    values, vectors = _leading(gram, count)
    largest = np.argmax(np.abs(vectors), axis=0)
    signs = np.where(np.take_along_axis(vectors, largest[np.newaxis], axis=0) < 0, -1.0, 1.0)
    return np.asarray(vectors * signs * values)


def estimate_k(gram: FloatArray, k_max: int, rng: np.random.Generator) -> int:
    """Return the number of clusters that the profile shows, from 1 to `k_max`.

    First the number s of leading directions: where the singular values fall most. Then the number of clusters of the
    best mean silhouette in them.

    Source: CFL-GP, App. G.
    Deviation: s is at least 2, because the first direction is the mean gradient, by far the largest far from trained
    models. The silhouette stands for the elbow or the gap statistic, which the paper names without figures.
    """
    values = singular_values(gram, k_max + 1)
    falls = values[:-1] - values[1:]
    dimensions = 2 + int(np.argmax(falls[1:])) if len(falls) > 1 else len(values)
    return choose_k(spectral_features(gram, dimensions), k_max, rng)


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
