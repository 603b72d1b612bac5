"""Discovery of groups of clients from one round: whether there are any, how many, and which.

Each client trains one common model on folds of its data and sends an update for each fold; docs/discovery.md has the
method. Clients with small folds, whose rows are noisy, may each join the nearest group of a tree of the others.

Notation: ``m`` folds, ``x_f(i)`` the row of client i in fold f, unit length, minus the mean of all clients in that
fold; ``a_f(i)`` the mean of client i's rows in the other folds; ``c_f(i)`` the mean of a_f over the group of i. The
score is ::

    score(K) = mean over f of  sum_i <c_f(i), x_f(i)> / ( |c_f| |x_f| ),     |c|^2 = sum_i |c(i)|^2

with the groups of a tree of a_f, cut at K. Ward's tree finds groups of like size even where single clients are noisy;
average linkage sets one or two clients apart. At each K the better one counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage, ward

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, cut
from florets.strategies.core.fold_scores import (
    LINKAGES,
    centre,
    centred_rows,
    distances,
    gram_of,
    joined,
    joined_scores,
    members_of,
    permuted,
    scores,
)
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.core.placement import centres, unit, unit_mean

# The test of more clients is made with so many of them, drawn at random: 399 permutations of 150 clients with four
# folds take some 5 s, and the time grows with the square.
CLIENTS = 150
# After this many permutations that reach the observed score, the p value is known to about a third.
ENOUGH = 10
# Scores that differ by less are equal but for the order of their additions.
ROUNDING = 1e-10


def can_reject(counts: IntArray, num_folds: int, level: float) -> bool:
    """Say whether so many clients of each class of fold sizes have enough permutations for a p value at the level."""
    return (num_folds - 1) * sum(math.lgamma(count + 1) for count in counts.tolist()) >= -math.log(level)


def p_value_far_apart(sizes: IntArray, num_folds: int) -> float:
    """Return up to which value the p value of groups of these sizes is, however far apart they are.

    `sizes` (K,), or (classes, K) where clients trade places within classes. Clients can be given to the groups in M!
    / prod n! ways, to the power m - 1: 216 for two pairs and four folds.
    """
    ways = sum(
        math.lgamma(sum(row) + 1) - sum(math.lgamma(size + 1) for size in row)
        for row in np.atleast_2d(sizes).tolist()
    )
    return math.exp(-(num_folds - 1) * ways)


def permutations_at(level: float) -> int:
    """Return twice as many permutations as a p value at the level takes: one of them may reach the score."""
    return math.ceil(2 / level - 1e-9) - 1


def permutation_p_value(
    gram: FloatArray, level: float, rng: np.random.Generator, classes: IntArray | None = None
) -> float:
    """Return the p value, in (0, 1], of the largest score, under permutations of the clients of each fold.

    It is exact, P(p <= u) <= u, where all clients' rows of a fold are exchangeable and the folds independent of each
    other: clients draw from one distribution, and their folds are disjoint and of one size. With `classes` (M,) of
    fold sizes clients trade places only within their class.

    The permutations end at the ``h``-th that reaches the observed score, with p = h / (number drawn).

    Source: Besag and Clifford, Sequential Monte Carlo p-values, 1991, for the stopping.
    """
    (num_folds, num_clients), permutations = gram.shape[:2], permutations_at(level)
    observed = scores(gram).max()
    enough = max(ENOUGH, math.floor(level * (permutations + 1)))
    reached = 0
    for drawn, order in enumerate(_orders(num_folds, num_clients, permutations, rng, classes), start=1):
        if scores(permuted(gram, order)).max() >= observed - ROUNDING:
            reached += 1
            if reached == enough:
                return reached / drawn
    return (reached + 1) / (permutations + 1)


def _orders(
    num_folds: int, num_clients: int, permutations: int, rng: np.random.Generator, classes: IntArray | None
) -> Iterator[IntArray]:
    """Yield permutations (m, M) of the clients of each fold, each within its class; the same array every time."""
    order = np.tile(np.arange(num_clients), (num_folds, 1))
    of_class = members_of(classes, num_clients)
    for _ in range(permutations):
        # The first fold stays: only how the folds lie beside each other matters.
        for members in of_class:
            order[1:, members] = rng.permuted(order[1:, members], axis=1)
        yield order


def difference_p_value(
    folds: FloatArray, level: float, rng: np.random.Generator, classes: IntArray | None = None
) -> float:
    """Return the p value, in (0, 1], that clients differ, be it by groups or each by itself.

    The statistic is the sum of the inner products of a client's rows in different folds, each fold centred. `folds`
    (M, m, D) may be a part of each row; see `permutation_p_value`.
    """
    rows = np.array(np.swapaxes(folds, 0, 1), dtype=np.float64)
    centre(rows, classes)
    squares = (rows**2).sum()

    def repeated(order: IntArray) -> float:
        total = np.take_along_axis(rows, order[:, :, np.newaxis], axis=1).sum(axis=0)
        return float((total**2).sum() - squares)

    (num_folds, num_clients, _), permutations = rows.shape, permutations_at(level)
    observed = repeated(np.tile(np.arange(num_clients), (num_folds, 1)))
    least = observed - ROUNDING * float(squares)
    orders = _orders(num_folds, num_clients, permutations, rng, classes)
    reached = sum(repeated(order) >= least for order in orders)
    return (reached + 1) / (permutations + 1)


# Of more clients so many are drawn: the inner products of their rows then take some 130 MB.
MOST_CLIENTS = 1000

Verdict = Literal["groups", "none", "all_differ"]


@dataclass(frozen=True)
class Groups:
    """What one discovery found: `k` groups, and `labels` (M,), from 0 in order of first appearance.

    `verdict` "all_differ" says that clients can be told apart, but no grouping into at most M / 2 groups describes it
    as well as each alone. `scores` are the cross-validated cosines of 2 to M groups, `best` the number that they give
    and `p_far_apart` its `p_value_far_apart`. `p_value` is NaN where K was given, or none was possible at the level.
    `similarity` (M, M) are cosines of mean rows; `sample` the clients searched, of over 1,000 (None: all);
    `stability` the ARI between K groups of either half of the folds (None without groups).
    """

    verdict: Verdict
    k: int
    labels: IntArray
    scores: FloatArray
    p_value: float
    similarity: FloatArray
    sample: IntArray | None = None
    best: int = 0
    p_far_apart: float = 0.0
    stability: float | None = None


LEAST_GAIN = 0.03
"""See `number_of_groups`."""


def discover(
    folds: FloatArray,
    k: int | None,
    *,
    level: float = 0.005,
    rng: np.random.Generator,
    classes: IntArray | None = None,
) -> Groups:
    """Say whether at least two clients fall into groups, how many, and which.

    `folds` (M, m, D) are rows of each client and of at least two folds: updates of one common model, or projections.
    With a known `k` neither score nor test decides. `classes` (M,) of fold sizes are those of `permutation_p_value`
    (None: one); -1 takes no part in the test. Groups form around clients of class 0, the largest; the others join
    them where that predicts better.
    """
    num_clients = len(folds)
    classes = np.zeros(num_clients, dtype=np.int64) if classes is None else classes
    if num_clients <= MOST_CLIENTS:
        return _discover(folds, k, level, rng, classes)
    sample = np.sort(rng.choice(num_clients, size=MOST_CLIENTS, replace=False))
    return _everybody(folds, sample, _discover(folds[sample], k, level, rng, classes[sample]))


def _discover(folds: FloatArray, k: int | None, level: float, rng: np.random.Generator, classes: IntArray) -> Groups:
    num_clients, num_folds = folds.shape[:2]
    rows = centred_rows(folds)
    gram, large = gram_of(rows), np.flatnonzero(classes == 0)
    by_way = scores(gram)
    if 1 < len(large) < num_clients:
        by_way = np.concatenate([by_way, joined_scores(gram, large)])
    values = by_way.max(axis=0)
    kinds, counts = np.unique(classes, return_counts=True)
    # One client alone has nobody to trade places with.
    takes_part = (kinds >= 0) & (counts > 1)
    kinds, counts = kinds[takes_part], counts[takes_part]
    verdict: Verdict = "none" if k == 1 else "groups"
    p_value, found = np.nan, k or 1
    if k is None:
        if can_reject(counts, num_folds, level):
            part = np.flatnonzero(np.isin(classes, kinds))
            if len(part) > CLIENTS:
                part = np.sort(rng.choice(part, size=CLIENTS, replace=False))
            of_part = None if len(kinds) < 2 else classes[part]
            is_all = len(part) == num_clients and of_part is None
            of_test = gram if is_all else gram_of(centred_rows(folds[part], of_part))
            p_value = permutation_p_value(of_test, level, rng, of_part)
        verdict, found = choose(values, p_value, level)

    def grouped(count: int, some: slice = slice(None)) -> IntArray:
        products = gram[some, :, some].sum(axis=(0, 2))
        way = int(by_way[:, int(np.clip(count, 2, num_clients)) - 2].argmax())
        among = large if way >= len(LINKAGES) else np.arange(num_clients)
        tree = linkage(distances(products[np.ix_(among, among)]), LINKAGES[way % len(LINKAGES)])
        return canonical(joined(products, among, tree, min(count, num_clients)))

    labels = grouped(found)
    best = number_of_groups(values[: max(num_clients // 2, 2) - 1])
    p_far_apart = 0.0
    if k is None:
        likely = labels if best == found else grouped(best)
        sizes = [np.bincount(likely[classes == one], minlength=int(likely.max()) + 1) for one in kinds]
        p_far_apart = p_value_far_apart(np.array(sizes).reshape(len(kinds), -1), num_folds)
    stability = None
    if verdict == "groups" and found < num_clients:
        even, odd = (grouped(found, slice(first, None, 2)).tolist() for first in (0, 1))
        stability = adjusted_rand_index(even, odd)
    # 0 for a client exactly at the mean.
    means = unit(rows.mean(axis=0))
    similarity = np.clip(means @ means.T, -1.0, 1.0)
    return Groups(verdict, found, labels, values, p_value, similarity, None, best, p_far_apart, stability)


def _everybody(folds: FloatArray, sample: IntArray, part: Groups) -> Groups:
    """Return what was found in a sample, with a group for each of all clients."""
    if part.verdict == "all_differ":
        return replace(part, k=len(folds), labels=np.arange(len(folds)), sample=sample)
    groups = centres(folds[sample], part.labels)
    labels = np.empty(len(folds), dtype=np.int64)
    for begin in range(0, len(folds), MOST_CLIENTS):
        rows = unit_mean(np.asarray(folds[begin : begin + MOST_CLIENTS], dtype=np.float64))
        labels[begin : begin + MOST_CLIENTS] = ((rows - groups.origin) @ groups.directions.T).argmax(axis=1)
    labels[sample] = part.labels
    return replace(part, labels=canonical(labels), sample=sample)


def choose(values: FloatArray, p_value: float, level: float) -> tuple[Verdict, int]:
    """Return the verdict and the number of groups that the scores of 2, ..., M groups and the p value give."""
    num_clients = len(values) + 1
    best = float(values.max())
    if not p_value <= level or best <= 0.0:
        return "none", 1
    smallest = number_of_groups(values)
    # Of three clients, two may be a group; of two, none.
    if smallest > max(num_clients / 2, 2) or smallest == num_clients:
        return "all_differ", num_clients
    return "groups", smallest


def number_of_groups(values: FloatArray) -> int:
    """Return the smallest K beyond which every further cut gains little, for each group that it adds.

    `values` (n,) are the scores s(K) of 2, ..., n + 1 groups. Little is at most the share `LEAST_GAIN`, q, of the
    mean gain of each group so far (one group scores 0) ::

        max over K' > K of  (s(K') - s(K)) / (K' - K)  <=  q s(K) / (K - 1).

    Planted groups with s = 1 and noise N = 1/3 (20 seeds each): below K the least ratio is 0.34 for groups of 5, and
    0.09 for groups of 10, 6, 3, 1; at K it is at most 0.05.
    """
    for index in range(len(values) - 1):
        later = (values[index + 1 :] - values[index]) / np.arange(1, len(values) - index)
        if later.max() <= LEAST_GAIN * values[index] / (index + 1):
            return index + 2
    return len(values) + 1


def update_groups(changes: FloatArray, num_groups: int) -> IntArray:
    """Group clients by the directions of their updates (M, D), less their mean, by Ward's method."""
    if len(changes) == 1:
        return np.zeros(1, dtype=np.int64)
    gram = gram_of(centred_rows(changes[:, np.newaxis]))[0, :, 0]
    return canonical(cut(ward(distances(gram)), min(num_groups, len(changes))))
