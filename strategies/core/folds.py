"""Discovery of groups of clients from one round: whether there are any, how many, and which.

Each client trains one common model on folds of its data and sends an update for each fold.

The method has three steps, each a function of the inner products of the clients' rows (`fold_scores`):

1. *How many*: the score of every number of groups, a cross-validated cosine; the smallest K whose score is within a
   tolerance of the largest. Above half the clients, groups explain nothing that the clients alone do not.
2. *Are there any*: the largest score against its distribution when the clients of each fold are permuted
   independently (`fold_permutations`). Step 1 always names a K; only this step can say that there is none.
3. *Which*: the tree of the clients' means over all folds, of the kind that scored best at K, cut there.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_joining import joined, joined_scores
from florets.strategies.core.fold_permutations import can_reject, p_value_far_apart, permutation_p_value
from florets.strategies.core.fold_scores import LINKAGES, centred_rows, distances, gram_of, scores
from florets.strategies.core.placement import centres, unit_mean
from florets.strategies.core.ward import cut

# Of more clients so many are drawn: the inner products of their rows then take some 130 MB.
MOST_CLIENTS = 1000

Verdict = Literal["groups", "none", "all_differ"]


@dataclass(frozen=True)
class Groups:
    """What one discovery found.

    Parameters
    ----------
    verdict
        ``"groups"``: K groups; ``"none"``: the clients cannot be told apart; ``"all_differ"``: they can, but no
        grouping into at most M / 2 groups describes it as well as each client alone.
    k
        Groups found: 1 for ``"none"``, M for ``"all_differ"``; where K was given, that K.
    labels : (M,) int64
        Group of each client, numbered from 0 in order of first appearance.
    scores : (number of candidates,) float64
        Cross-validated cosine of each candidate, by the better of two trees; see also `fold_joining`.
    candidates : (number of candidates,) int64
        The numbers of groups that were scored, 2 to M; none for fewer than two clients.
    p_value
        Of the permutation test; NaN where K was given, or where there are too few clients and folds for any
        p value at the level.
    similarity : (M, M) float64
        Cosines of the clients' mean rows, each fold centred over the clients; 0 where a client is at the mean.
    sample : (S,) int64 or None
        Where there are more than 1,000 clients, the ones that scores, candidates and similarity (S, S) are of: the
        others were placed with the nearest of the groups found. None: all.
    best
        The number of groups, of those that can be found, whose score is the largest, or a smaller one within the
        tolerance; 0 for fewer than two clients.
    p_far_apart
        Up to which value the p value of groups of such sizes is, however far apart they are: where that is above the
        level, that no groups were found says nothing. 0 where K was given, or for fewer than two clients.
    """

    verdict: Verdict
    k: int
    labels: IntArray
    scores: FloatArray
    candidates: IntArray
    p_value: float
    similarity: FloatArray
    sample: IntArray | None = None
    best: int = 0
    p_far_apart: float = 0.0


TOLERANCE = 0.01
"""Share of the largest score that a smaller number of groups may cost."""
FEW_CLIENTS, TOLERANCE_OF_FEW = 6, 0.05
"""The same of so many clients or fewer: with two or three in a group, and some ten samples in a fold, a cut too many
costs less than chance moves the score."""


def discover(
    folds: FloatArray,
    k: int | None,
    *,
    level: float = 0.005,
    tolerance: float | None = None,
    permutations: int = 399,
    rng: np.random.Generator,
    tested: BoolArray | None = None,
) -> Groups:
    """Say whether the clients fall into groups, how many, and which.

    Parameters
    ----------
    folds : (M, m, D) float
        Row of each client and fold: the update of one common model, a projection of it, or its signs. Rows are scaled
        to unit length here. The same fold number means the same thing for all clients (steps, order of batches); all
        folds of the clients that are tested hold the same number of samples.
    k : int or None
        Number of groups, where it is known: neither the score nor the test then decides. With at least as many
        groups as clients, each client is its own.
    level : float
        Level of the test.
    tolerance : float or None
        A smaller number of groups is taken if it costs less than this share of the largest score; None: 0.01, and
        of at most six clients 0.05.
    permutations : int
        Most permutations of the test.
    rng : numpy.random.Generator
        Draws the permutations.
    tested : (M,) bool or None
        Clients of the test, which is exact only among those whose folds are of one size; None: all. The others take
        part in the choice of K, and in the groups.

    Returns
    -------
    Groups
        For no client or one client, and for clients whose rows are all equal: ``"none"``.

    Raises
    ------
    ValueError
        If an entry is not finite, `k` is below 1, or there are fewer than two folds.
    """
    num_clients, num_folds = folds.shape[:2]
    if num_folds < 2:
        raise ValueError(f"discovery needs at least 2 folds of each client's data, not {num_folds}.")
    if k is not None and k < 1:
        raise ValueError(f"the number of groups is {k}: it must be at least 1.")
    if tolerance is None:
        tolerance = TOLERANCE_OF_FEW if num_clients <= FEW_CLIENTS else TOLERANCE
    if num_clients > MOST_CLIENTS:
        sample = np.sort(rng.choice(num_clients, size=MOST_CLIENTS, replace=False))
        part_of = None if tested is None else tested[sample]
        part = _discover(folds[sample], k, level, tolerance, permutations, rng, part_of)
        return _everybody(folds, sample, part)
    return _discover(folds, k, level, tolerance, permutations, rng, tested)


def _discover(
    folds: FloatArray,
    k: int | None,
    level: float,
    tolerance: float,
    permutations: int,
    rng: np.random.Generator,
    tested: BoolArray | None,
) -> Groups:
    num_clients, num_folds = folds.shape[:2]
    rows = centred_rows(folds)
    similarity = cosines(rows)
    if num_clients < 2:
        one = np.zeros(num_clients, dtype=np.int64)
        return Groups("none", k or 1, one, np.zeros(0), np.zeros(0, dtype=np.int64), np.nan, similarity)
    gram = gram_of(rows)
    candidates = np.arange(2, num_clients + 1)
    by_way = scores(gram)
    large = np.arange(num_clients) if tested is None else np.flatnonzero(tested)
    if 1 < len(large) < num_clients:
        by_way = np.concatenate([by_way, joined_scores(gram, large)])
    values = by_way.max(axis=0)
    p_value = np.nan
    if k is None:
        of_test = gram if len(large) == num_clients else gram_of(centred_rows(folds[large]))
        if can_reject(of_test.shape[1], num_folds, level):
            p_value = permutation_p_value(of_test, level, permutations, rng)
        verdict, found = choose(values, p_value, level, tolerance)
    else:
        verdict, found = "groups" if k > 1 else "none", k
    products = gram.sum(axis=(0, 2))

    def grouped(count: int) -> IntArray:
        way = int(by_way[:, int(np.clip(count, 2, num_clients)) - 2].argmax())
        method = LINKAGES[way % len(LINKAGES)]
        if way < len(LINKAGES):
            return canonical(cut(linkage(distances(products), method), min(count, num_clients)))
        return canonical(joined(products, large, method, min(count, num_clients)))

    labels = grouped(found)
    best = smallest_of(values[: max(num_clients // 2, 2) - 1], tolerance)
    likely = labels if best == found else grouped(best)
    p_far_apart = 0.0 if k is not None else p_value_far_apart(np.bincount(likely[large]), num_folds)
    return Groups(verdict, found, labels, values, candidates, p_value, similarity, None, best, p_far_apart)


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


def choose(values: FloatArray, p_value: float, level: float, tolerance: float) -> tuple[Verdict, int]:
    """Return the verdict and the number of groups that scores and p value give.

    Parameters
    ----------
    values : (M - 1,) float64
        Scores of 2, ..., M groups.
    p_value : float
        NaN where no test was possible: no groups are claimed then.
    level, tolerance : float
        See `discover`.
    """
    num_clients = len(values) + 1
    best = float(values.max())
    if not p_value <= level or best <= 0.0:
        return "none", 1
    smallest = smallest_of(values, tolerance)
    # Of three clients, two may be a group; of two, none.
    if smallest > max(num_clients / 2, 2) or smallest == num_clients:
        return "all_differ", num_clients
    return "groups", smallest


def smallest_of(values: FloatArray, tolerance: float) -> int:
    """Return the smallest number of groups whose score is within the tolerance of the largest.

    Parameters
    ----------
    values : (n,) float64
        Scores of 2, ..., n + 1 groups.
    tolerance : float
        See `discover`.
    """
    best = values.max()
    return 2 + int(np.argmax(values >= best - tolerance * abs(best)))


def cosines(rows: FloatArray) -> FloatArray:
    """Return the cosines of the clients' means over the folds, (M, M); 0 for a client exactly at the mean."""
    means = rows.mean(axis=0)
    length = np.linalg.norm(means, axis=1, keepdims=True)
    units = means / np.where(length > 0.0, length, 1.0)
    products: FloatArray = units @ units.T
    return np.clip(products, -1.0, 1.0)
