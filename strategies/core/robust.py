"""Averages of a group's updates that a minority of hostile clients cannot move far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.outliers import lower_median
from florets.strategies.core.rows import Rows, add_weighted, changes_of, columns_of

RobustName = Literal["clip", "trimmed_mean", "median", "geometric_median", "multi_krum"]

MOST_WEIGHT = 5.0
"""Largest weight of a client in its group's average, as a multiple of the median client's."""
MOST_SHARE = 0.45
"""Largest share of a group's weight that as many clients as can be hostile may have together: less than half."""
LONGEST = 2.0
"""Length to which `clip` shortens, in lengths of the median: honest clients that take more steps are not cut."""
LEAST_GROUP = 3
"""Members that a group needs for a majority: if two differ, either may be hostile."""
SKETCH = 4093
"""Entries that distances between long updates are taken on (a relative error of about 2 %)."""
BLOCK = 2**20
"""Values that are sorted together, those of some coordinates: they stay in the cache."""
SPARSE = 16
"""One of so many blocks of coordinates is examined where a sample suffices."""
STEPS = 100
"""Most steps of Weiszfeld's iteration."""


@dataclass(frozen=True)
class Gram:
    """Inner products (n, n) of changes, or of the count sketches of long ones, and the exact lengths (n,)."""

    products: FloatArray
    lengths: FloatArray

    def of(self, some: BoolArray) -> "Gram":
        """Return those of some of the changes, a mask (n,)."""
        return self if some.all() else Gram(self.products[np.ix_(some, some)], self.lengths[some])


@dataclass(frozen=True)
class RobustRule:
    """One rule for the average of a group's updates.

    Each rule works on the changes d_i = x_i - theta of n members with weights w_i, at most `MOST_WEIGHT` times the
    median client's; f = ceil(`hostile` n), at most (n - 1) // 2, of them may be hostile.

    ``"clip"``: changes longer than twice the median member's are shortened to that. ``"trimmed_mean"``: of each
    coordinate, the mean without the f smallest and largest values; ``"median"``: of each coordinate. Both count every
    member alike. ``"geometric_median"``: the point with the least sum of weighted distances. ``"multi_krum"``: the
    mean of the n - f updates that are closest to their n - f - 2 neighbours.

    A client alone in its group is not protected from itself. In a group of two, where no majority exists, both
    changes are shortened to the length of the median participant's (`typical`).

    Source: ``trimmed_mean``, ``median``: Yin et al. 2018, Def. 1 and 2. ``geometric_median``: Pillutla et al. 2022
    (RFA), Alg. 1. ``multi_krum``: Blanchard et al. 2017, Sec. 4. ``clip``: the norm bound of Sun et al. 2019, with
    the median in place of a constant.
    Deviation: distances between updates of more than `SKETCH` entries are those of their count sketches.
    """

    name: RobustName
    hostile: float = 0.2


@dataclass(eq=False)
class Robust:
    """A rule at work on the rows (P, R) of one exchange; `kept` (P,) is the part of each that counted.

    `grams` are those of models' changes, where they are known.
    """

    rule: RobustRule
    rows: Rows
    assignment: IntArray
    bank: FloatArray
    grams: Mapping[int, Gram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = np.ones(len(self.assignment))

    @cached_property
    def _typical(self) -> float:
        """Length of the median participant's change."""
        lengths = np.empty(len(self.assignment))
        for model in np.unique(self.assignment):
            members, gram = np.flatnonzero(self.assignment == model), self.grams.get(int(model))
            lengths[members] = lengths_of(self.rows, members, self.bank[model]) if gram is None else gram.lengths
        return lower_median(lengths)

    def mean(self, members: IntArray, weights: FloatArray, start: FloatArray) -> FloatArray:
        """Return the average (R,) of the rows `members` (n,) with `weights` (n,), as changes from `start` (R,)."""
        count, name = len(members), self.rule.name
        most = most_hostile(count, self.rule.hostile)
        if count >= LEAST_GROUP and name in ("trimmed_mean", "median"):
            cut = (count - 1) // 2 if name == "median" else most
            middle, self.kept[members] = trimmed(self.rows, members, len(start), cut)
            return middle
        weights, gram = bounded(weights, most), self.grams.get(int(self.assignment[members[0]]))
        if count < LEAST_GROUP or name == "clip":
            lengths = lengths_of(self.rows, members, start) if gram is None else gram.lengths
            kept = clip_factors(lengths, self._longest(lengths))
            shares = weights * kept / weights.sum()
        else:
            products = (gram or gram_of(self.rows, members, start, most + 1)).products
            if name == "multi_krum":
                kept = multi_krum(distances_of(products), most).astype(np.float64)
                shares = weights * kept / (weights * kept).sum()
            else:
                shares = geometric_median(products, weights)
                kept = np.minimum(shares * weights.sum() / weights, 1.0)
        self.kept[members] = kept
        # theta + sum of share_i (x_i - theta).
        total: FloatArray = start * (1.0 - shares.sum())
        add_weighted(self.rows, shares, members, total)
        return total

    def _longest(self, lengths: FloatArray) -> float:
        """Return up to which length changes of these lengths, of one model's members, count as a whole."""
        if len(lengths) >= LEAST_GROUP:
            return LONGEST * lower_median(lengths)
        return self._typical if len(lengths) == 2 and len(self.assignment) > 2 else np.inf


def bounded(weights: FloatArray, hostile: int) -> FloatArray:
    """Return the weights (n,), none larger than `MOST_WEIGHT` times the (lower) median.

    The `hostile` heaviest clients together have at most `MOST_SHARE` of the sum, or all weights are equal.
    """
    most = MOST_WEIGHT * lower_median(weights)
    if hostile:
        # For any j: hostile * bound <= ratio * (sum of the j lightest + bound for each of the other benign ones).
        ordered = np.sort(weights)
        sums = np.concatenate([[0.0], np.cumsum(ordered[: len(weights) - hostile])])
        slopes = hostile * (1 - MOST_SHARE) / MOST_SHARE - np.arange(len(sums))[::-1]
        most = min(most, max(float((sums[slopes > 0] / slopes[slopes > 0]).min()), float(ordered[ordered > 0][0])))
    return np.minimum(weights, most)


def lengths_of(rows: Rows, members: IntArray, start: FloatArray) -> FloatArray:
    """Return the Euclidean length (n,) of each member's change from `start` (R,)."""
    return np.sqrt([float(np.dot(change, change)) for change in changes_of(rows, members, start)])


def shortened(vectors: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the clients' vectors, those longer than the median client's shortened to its length."""
    lengths = np.array([np.linalg.norm(vector) for vector in vectors.values()])
    limit = lower_median(lengths) if len(lengths) >= LEAST_GROUP else np.inf
    factors = clip_factors(lengths, limit)
    return {key: vector * factor for (key, vector), factor in zip(vectors.items(), factors, strict=True)}


def clip_factors(lengths: FloatArray, limit: float) -> FloatArray:
    """Return the factors (n,) in [0, 1] that shorten changes of these lengths to at most `limit`."""
    return np.minimum(1.0, limit / np.maximum(lengths, np.finfo(np.float64).tiny))


def trimmed(rows: Rows, members: IntArray, size: int, cut: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean (R,) of each coordinate of n rows without its `cut` least and largest, and the part of each."""
    count, begin = len(members), 0
    mean, inside, looked = np.empty(size), np.zeros(count), 0
    for number, columns in enumerate(columns_of(rows, members, size, max(BLOCK // count, 1))):
        unsorted = columns.copy() if number % SPARSE == 0 else columns[:0]
        columns.sort(axis=1)
        middle = columns[:, cut : count - cut]
        mean[begin : begin + len(middle)] = np.einsum("ij->i", middle) / middle.shape[1]
        begin += len(middle)
        looked += len(unsorted)
        if len(unsorted):
            inside += ((unsorted >= middle[:, :1]) & (unsorted <= middle[:, -1:])).sum(axis=0)
    return mean, inside / max(looked, 1)


def gram_of(rows: Rows, members: IntArray, start: FloatArray, salt: int) -> Gram:
    """Return the inner products of the members' changes from `start`; of long ones, of their count sketches.

    The sketch is drawn from the first `salt` updates, one of which is benign: no client can know what it does not
    show.
    """
    size, lengths = len(start), np.empty(len(members))
    if size <= SKETCH:
        changes = np.stack([rows[int(row)] - start for row in members])
        products = np.asarray(changes @ changes.T)
        return Gram(products, np.sqrt(np.diagonal(products)))
    digest = blake2b(digest_size=16)
    for change in changes_of(rows, members[:salt], start):
        digest.update(change[::SKETCH].tobytes())
    rng = np.random.default_rng(int.from_bytes(digest.digest(), "little"))
    signs = rng.integers(2, size=size).astype(np.float32) * 2 - 1
    # Entries SKETCH apart share a place.
    whole = size - size % SKETCH
    table, sketches = signs[:whole].reshape(-1, SKETCH), np.empty((len(members), SKETCH), np.float32)
    for row, change in enumerate(changes_of(rows, members, start)):
        lengths[row] = np.dot(change, change)
        sketches[row] = np.einsum("ij,ij->j", change[:whole].reshape(-1, SKETCH), table)
        sketches[row, : size - whole] += change[whole:] * signs[whole:]
    return Gram((sketches @ sketches.T).astype(np.float64), np.sqrt(lengths))


def distances_of(gram: FloatArray) -> FloatArray:
    """Return the squared distances (n, n) of vectors with these inner products."""
    squares = np.diagonal(gram)
    return np.maximum(squares[:, np.newaxis] + squares - 2.0 * gram, 0.0)


def multi_krum(distances: FloatArray, hostile: int) -> BoolArray:
    """Return the mask (n,) of the n - f members with the lowest scores; of equal scores the first ones.

    A score is the sum of the squared distances to the n - f - 2 nearest others, at least one.
    """
    count = len(distances)
    nearest = max(count - hostile - 2, 1)
    others = np.sort(distances + np.diag(np.full(count, np.inf)), axis=1)[:, :nearest]
    mask = np.zeros(count, dtype=np.bool_)
    mask[np.argsort(others.sum(axis=1), kind="stable")[: count - hostile]] = True
    return mask


def geometric_median(gram: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the shares (n,) with which members make up their weighted geometric median: Weiszfeld's iteration."""
    shares: FloatArray = weights / weights.sum()
    least = 1e-6 * np.sqrt(max(lower_median(np.diagonal(gram)), np.finfo(np.float64).tiny))
    for _ in range(STEPS):
        along = gram @ shares
        squares = np.diagonal(gram) - 2.0 * along + shares @ along
        raw = weights / np.maximum(np.sqrt(np.maximum(squares, 0.0)), least)
        following = raw / raw.sum()
        done = float(np.abs(following - shares).max()) < 1e-9
        shares = following
        if done:
            break
    return shares


def most_hostile(count: int, fraction: float) -> int:
    """Return how many of `count` may be hostile, always less than half."""
    # The small constant keeps products such as 0.2 * 5 from gaining one by rounding.
    return min(int(np.ceil(fraction * count - 1e-9)), (count - 1) // 2)


def most_expelled(count: int, fraction: float) -> int:
    """Return how many of `count` may be left out of all: `fraction` of them, of three or more at least one."""
    return min(most_hostile(count, fraction), max(int(fraction * count + 1e-9), 1))
