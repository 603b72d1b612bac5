"""Groups of clients under differential privacy: from noised sums over their rows, or from rows noised by clients.

Each client has two rows, what the common model learns on two disjoint folds of its data. They are used in four sums
over clients, each of bounded sensitivity, see `noised_groups`: a sum is released with noise, or the rows hold
noise already. Whatever is computed of these sums is as private as they are.

Rows of K groups, less their common mean, lie near K - 1 directions. Noise that is independent between the folds
averages out of the sum of products of a client's two rows, whose eigenvectors those directions are. In their
coordinates the mean, second and third moments determine K centres.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.placement import unit
from florets.strategies.core.robust import clip_factors

PARTS = 10
"""Parts of the budget for grouping; the releases below share it. Chosen on seeds that no table uses."""
_TEST, _MEAN, _SPREAD, _SKEW = 4, 1, 3, 2
_GIVEN = (2, 5, 3)
"""Parts of mean, spread and skew where K is given and nothing is tested."""
_DIFFERENCE = 3.0
"""By how much one client changes the test's statistic, compared with a permuted one: by one product of its own two
rows, and by two products with other clients' rows."""
_LEAST_EIGENVALUE = 0.12
"""Of the largest one: directions with less are no groups'."""
_DRAWS, _STARTS, _STEPS, _REPEATS = 100, 8, 30, 10


@dataclass(frozen=True)
class Release:
    """How sums are released.

    Attributes
    ----------
    add
        Returns an array that one client changes by at most a norm, with noise in each entry; it costs some of the
        `PARTS`.
    deviation
        Standard deviation of the noise of one part, at a norm of 1.
    """

    add: Callable[[FloatArray, float, int], FloatArray]
    deviation: float

    @classmethod
    def of(cls, deviation: float, rng: np.random.Generator) -> "Release":
        """Return releases with this deviation whose noise a generator draws."""

        def add(total: FloatArray, norm: float, parts: int) -> FloatArray:
            return total + np.asarray(rng.normal(0.0, deviation * norm / math.sqrt(parts), total.shape))

        return cls(add, deviation)


@dataclass(frozen=True)
class NoisedGroups:
    """What was found.

    Attributes
    ----------
    k
        1: no groups.
    labels : (M,) int64
        Group of each client; where sums were noised, it depends on all others' rows through these sums alone.
    p_value
        None where it is not released, or nothing was tested.
    origin, directions : (D,), (K, D) float64
        Mean of the rows, and each group's direction from it.
    error
        Estimated fraction of clients in a wrong group, given that there are K: see `_error`.
    parts
        Parts of the budget that were spent.
    """

    k: int
    labels: IntArray
    p_value: float | None
    origin: FloatArray
    directions: FloatArray
    error: float
    parts: int


def noised_groups(
    rows: FloatArray, k: int | None, level: float, rng: np.random.Generator, release: Release | None = None
) -> NoisedGroups:
    """Say whether clients fall into groups, how many (K given: neither is asked), and which.

    Parameters
    ----------
    rows : (M, 2, D) float64
        Two for each client; 0 where a client has none. They are scaled to unit length, unless they hold noise.
    release
        None: rows hold noise already.

    Notes
    -----
    With a client that has rows in place of none, the mean's sum changes by a norm of at most 1, as do the sums of
    products of two and of three vectors of at most unit length; for the test see `differ`.
    """
    count, _, width = rows.shape
    if release is not None:
        rows = unit(rows)
    spent, p_value = 0, None
    if k is None:
        rejected, value = differ(rows, level, rng, release)
        spent, p_value = _TEST, value if release is None else None
        if not rejected:
            return NoisedGroups(
                1, np.zeros(count, np.int64), p_value, np.zeros(width), np.zeros((1, width)), 0.0, spent
            )
    mean, spread, skew = (_MEAN, _SPREAD, _SKEW) if k is None else _GIVEN
    if k == 2:
        # Two centres need no third moment.
        spread, skew = spread + skew, 0
    origin = _released(release, rows.mean(axis=1).sum(axis=0), mean) / count
    present = rows.any(axis=2, keepdims=True)
    rest = np.where(present, rows - origin, 0.0)
    if release is not None:
        rest = unit(rest)
    products = _released(release, rest[:, 0].T @ rest[:, 1], spread)
    values, axes = np.linalg.eigh((products + products.T) / 2)
    values, axes = values[::-1], axes[:, ::-1]
    if k is None:
        least = max(_largest_by_chance(rest, release, spread, rng), _LEAST_EIGENVALUE * values[0])
        k = 1 + max(1, int((values > least).sum()))
    k = min(k, width + 1)
    points = rest @ axes[:, : k - 1]  # (M, 2, K - 1)
    moments = np.maximum(values[: k - 1], np.finfo(np.float64).eps) / count
    means = points.mean(axis=1)

    def fitted(means: FloatArray, release: Release | None) -> tuple[FloatArray, FloatArray]:
        third = np.einsum("ia,ib,ic->abc", means, means, means)
        third = _released(release, third, skew) if k > 2 else np.zeros(third.shape)
        return centres_of(moments, third / count, rng)

    found, weights = fitted(means, release)
    labels = nearest_centre(means, found)
    error = _error(points, found, weights, labels, fitted, release, rng) if k > 1 else 0.0
    spent += mean + spread + (skew if k > 2 else 0)
    return NoisedGroups(k, labels, p_value, origin, unit(found @ axes[:, : k - 1].T), error, spent)


def differ(rows: FloatArray, level: float, rng: np.random.Generator, release: Release | None) -> tuple[bool, float]:
    """Test whether clients are alike; return whether that is rejected, and the p value (not to be released).

    The statistic is the sum over clients of the product of their two rows; the second rows are permuted among
    clients. What all clients share adds the same to each.

    **The level is kept**: if all clients draw from one distribution and their folds are independent, the statistics
    of all permutations are exchangeable, and they still are after each has noise that is drawn alike and is
    independent of all else; so P(p <= u) <= u, for any noise.

    **The answer is private**: let the noise of the permuted statistics be anything, as it says nothing of the data.
    Rejection then depends on the data through one number alone, the statistic less an order statistic of the
    permuted ones with their noise, which one client changes by at most 3; and that number has Gaussian noise.

    Source: Kim and Schrab 2023, Differentially private permutation tests. Deviation: Gaussian noise, which composes
    exactly with the run's other releases, in place of Laplace's.
    """
    first, second = rows[:, 0], rows[:, 1]
    permutations = math.ceil(2 / level - 1e-9) - 1
    permuted = [np.vdot(first, second[rng.permutation(len(rows))]) for _ in range(permutations)]
    noised = _released(release, np.array([np.vdot(first, second), *permuted]), _TEST, _DIFFERENCE)
    reached = int((noised[1:] >= noised[0]).sum())
    p_value = (reached + 1) / (permutations + 1)
    return p_value <= level, p_value


def centres_of(moments: FloatArray, third: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return K centres (K, K - 1) and their weights (K,) from the moments of centred points.

    `moments` (K - 1,) are the second ones, along axes in which they are uncorrelated; `third` (K - 1,) * 3. With a
    coordinate 1 in front and scaled to unit moments, the centres, times the roots of their weights, are orthonormal.
    They maximise the sum of the third moments along them, whose maximum is searched from random starts.

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
    best, most = np.eye(count), -math.inf
    for _ in range(_STARTS):
        basis = np.linalg.qr(rng.normal(size=(count, count)))[0]
        for _ in range(_STEPS):
            left, _, right = np.linalg.svd(np.einsum("abc,bk,ck->ak", tensor, basis, basis))
            basis = left @ right
        value = float(np.einsum("abc,ak,bk,ck->", tensor, basis, basis, basis))
        if value > most:
            best, most = basis, value
    roots = np.abs(best[0])
    # A group of less than 4 % of the clients would be placed too far out by a small error of its weight.
    centres = (best[1:] * np.sign(best[0])).T * scale / np.maximum(roots, 0.2)[:, np.newaxis]
    return centres, roots**2


def _largest_by_chance(rest: FloatArray, release: Release | None, parts: int, rng: np.random.Generator) -> float:
    """Return the 95 % quantile of the largest eigenvalue of the sum of products, where no direction is a group's."""
    count, _, width = rest.shape
    drawn = []
    for _ in range(_DRAWS):
        if release is None:
            products = rest[:, 0].T @ rest[rng.permutation(count), 1]
        else:
            # Rows of equal direction have products with a variance of 1 / width^2 in each entry.
            products = rng.normal(
                0.0, math.hypot(release.deviation / math.sqrt(parts), math.sqrt(count) / width), (width, width)
            )
        drawn.append(np.linalg.eigvalsh((products + products.T) / 2)[-1])
    return float(np.quantile(drawn, 0.95))


def _error(
    points: FloatArray,
    centres: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    fitted: Callable[[FloatArray, Release | None], tuple[FloatArray, FloatArray]],
    release: Release | None,
    rng: np.random.Generator,
) -> float:
    """Return the fraction of clients that are estimated to be in a wrong group.

    A client is wrong where its own noise, by the difference of its two points, brought it nearer to another centre,
    or where the centres' noise did: the fit is repeated with more noise of the same size, or, where rows hold it, on
    clients drawn with replacement.
    """
    from scipy.optimize import linear_sum_assignment

    means, count = points.mean(axis=1), len(points)
    variance = float(((points[:, 0] - points[:, 1]) ** 2).mean()) / 4
    squares = ((means[:, np.newaxis] - centres) ** 2).sum(axis=2)
    logs = np.log(np.maximum(weights, 1e-12)) - squares / (2 * max(variance, 1e-300))
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    own = float(1 - (shares[np.arange(count), labels] / shares.sum(axis=1)).mean())
    moved = []
    for _ in range(_REPEATS):
        if release is None:
            again, _ = fitted(means[rng.integers(count, size=count)], None)
        else:
            again, _ = fitted(means, Release.of(release.deviation, rng))
        table = np.zeros((len(centres),) * 2)
        np.add.at(table, (labels, nearest_centre(means, again)), 1.0)
        moved.append(1 - table[linear_sum_assignment(-table)].sum() / count)
    return 1 - (1 - own) * (1 - float(np.mean(moved)))


def _released(release: Release | None, total: FloatArray, parts: int, norm: float = 1.0) -> FloatArray:
    return total if release is None else release.add(total, norm, parts)


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
