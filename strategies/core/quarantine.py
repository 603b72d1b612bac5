"""Quarantine of clients whose updates depart from their group's for several rounds, or whose rows fit no group.

Such a client counts again once its updates agree; its rows are set aside, and placed after the others are grouped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.distance import cdist

from florets.strategies.core import BoolArray, FloatArray, IntArray, cluster
from florets.strategies.core.outliers import LEAST_CLIENTS, lower_median
from florets.strategies.core.robust import LEAST_GROUP, geometric_median

ROUNDS = 3
"""Consecutive rounds in which a client's update departs before quarantine, and agrees before it counts again."""
PROBATION = 2
"""Rounds for which a far client is set aside before it is judged: by then the others' groups have separated."""
COMMON = 0.3
"""Least median agreement of a group's members with which any of them is judged."""
SPREADS = 4.0
"""Robust standard deviations below the group's median agreement at which an update departs."""
FARTHEST = 2.0
"""Distance from the median row beyond which a row is far, relative to the nearest of the `hostile` + 1 farthest."""
SHORT = 0.25
"""Length, relative to the median row's, below which a row has no direction and belongs to no group."""
WITHIN = 0.25
"""Largest distance of a clear group's rows from its centre, relative to that of the nearest other centre."""
OUTSIDE = 0.5
"""Relative distance from the nearest centre beyond which a row belongs to no group."""
CUTS = 20
"""Most numbers of clusters that are tried in search of clear groups."""

ELBOW, ELBOW_OF_TWO = 0.5, 0.25
"""Largest ratio S(K) S(K) / (S(K - 1) S(K + 1)) of within-cluster sums of squares with which K groups are real."""

UNKNOWN, AGREES, DEPARTS = 0, 1, -1


def agreement(gram: FloatArray, trusted: BoolArray) -> FloatArray:
    """Return the cosine (n,) of each member's change with the geometric median of the other `trusted` ones'."""
    lengths = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(np.float64).tiny))
    cosines = gram / np.outer(lengths, lengths)
    shares = np.zeros(len(gram))
    shares[trusted] = geometric_median(cosines[np.ix_(trusted, trusted)], np.ones(int(trusted.sum())))
    along = cosines @ shares
    # Without the member's own share.
    squares = shares @ along - 2.0 * shares * along + shares**2
    found: FloatArray = (along - shares) / np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    return found


def verdicts(gram: FloatArray, trusted: BoolArray) -> tuple[IntArray, FloatArray]:
    """Return what one round says of each member of a group, (n,), and its `agreement` (n,).

    With mu the median agreement of the trusted members and s its robust standard deviation, a member `DEPARTS`
    `SPREADS` s below mu and below -mu / 2, and `AGREES` above mu / 4. Nobody is judged if mu is below `COMMON`.
    """
    unknown = np.full(len(gram), UNKNOWN), np.zeros(len(gram))
    if trusted.sum() < LEAST_GROUP - 1 or len(gram) < LEAST_GROUP:
        return unknown
    cosines = agreement(gram, trusted)
    middle = lower_median(cosines[trusted])
    if middle < COMMON:
        return unknown
    spread = 1.4826 * float(np.median(np.abs(cosines[trusted] - middle)))
    departs = (cosines < middle - SPREADS * spread) & (cosines < -middle / 2)
    return np.where(departs, DEPARTS, np.where(cosines >= middle / 4, AGREES, UNKNOWN)), cosines


@dataclass
class Record:
    """`rounds` running in which a client's update departed in one group, or in quarantine agreed."""

    model: int = -1
    rounds: int = 0


@dataclass
class Quarantine:
    """Who is in quarantine (`clients`; in this round `entered`), and what is known of the clients.

    `records` are of their updates; `far` has the first round in which what a client is grouped by was far from all
    others', and `probation` those whose updates do not count in this round because of that. Of those that have left
    quarantine (`cleared`) only their updates can bring them back.
    """

    clients: set[str] = field(default_factory=set)
    entered: list[str] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    far: dict[str, int] = field(default_factory=dict)
    probation: set[str] = field(default_factory=set)
    cleared: set[str] = field(default_factory=set)

    def enter(self, keys: Iterable[str]) -> None:
        """Take clients into quarantine."""
        for key in sorted(keys):
            self.records.pop(key, None)
            self.clients.add(key)
            self.entered.append(key)

    def observe(self, model: int, keys: Sequence[str], gram: FloatArray, most: int) -> list[str]:
        """Judge a group's members by inner products (n, n) of their changes; return who has left quarantine.

        At most `most` enter it: of more that depart, those that agree least. Nothing is said where the trusted are
        no majority against all that may yet be hostile.
        """
        trusted = np.array([key not in self.clients for key in keys])
        if trusted.sum() <= 2 * most:
            return []
        found, cosines = verdicts(gram, trusted)
        due, back = [], []
        for row, key in enumerate(keys):
            if found[row] == UNKNOWN:
                continue
            record = self.records.setdefault(key, Record())
            is_one = found[row] == (DEPARTS if trusted[row] else AGREES)
            before = record.rounds if record.model == model else 0
            record.model, record.rounds = model, before + 1 if is_one else 0
            if record.rounds < ROUNDS:
                continue
            if trusted[row]:
                due.append((float(cosines[row]), key))
            else:
                back.append(key)
        self.enter(key for _, key in sorted(due)[:most])
        for key in back:
            self.clients.remove(key)
            del self.records[key]
        self.cleared.update(back)
        return back


def far_rows(rows: FloatArray, hostile: int) -> BoolArray:
    """Return the mask (M,) of the far ones among rows (M, D): at most `hostile`, and none of fewer than three."""
    if len(rows) < LEAST_CLIENTS:
        return np.zeros(len(rows), dtype=np.bool_)
    distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    reference = float(np.sort(distances)[-1 - hostile])
    # Where all others are equal nothing says what is far.
    mask: BoolArray = distances > (FARTHEST * reference if reference > 0 else np.inf)
    return mask


def lone_rows(rows: FloatArray, num_clusters: int, hostile: int, rng: np.random.Generator) -> BoolArray:
    """Return the mask (M,) of rows (M, D) that are of none of `num_clusters` clear groups: at most `hostile`.

    Ward's tree of those that are neither far nor `SHORT` is cut into more clusters than there are groups, of which
    the largest are the groups; others that are near to each other must be at most half as many as the smallest has,
    as many if they are far, and any number if they are short. Where groups are not clear (`WITHIN`, `OUTSIDE`) none
    is lone.
    """
    none, far, lengths = np.zeros(len(rows), dtype=np.bool_), far_rows(rows, hostile), np.linalg.norm(rows, axis=1)
    short = lengths < SHORT * lower_median(lengths)
    counted = np.select([short, far], [0, 1], 2)
    some = np.flatnonzero(counted == 2)
    if len(some) > cluster.MOST_MERGED:
        some = np.sort(rng.choice(some, size=cluster.MOST_MERGED, replace=False))
    if num_clusters < 2 or hostile < 1 or len(some) < num_clusters + LEAST_CLIENTS:
        return none
    tree = cluster.ward_tree(rows[some])
    for more in sorted({round(hostile * part / CUTS) for part in range(CUTS + 1)}):
        clusters = cluster.cut(tree, min(num_clusters + more, len(some)))
        largest = np.argsort(-np.bincount(clusters), kind="stable")[:num_clusters]
        centres = cluster.centroids(rows[some], clusters)[largest]
        apart = (cdist(centres, centres) + np.diag(np.full(num_clusters, np.inf))).min(axis=1)
        distances = cdist(rows, centres)
        nearest = distances.argmin(axis=1)
        relative = distances.min(axis=1) / np.maximum(apart[nearest], np.finfo(np.float64).tiny)
        lone: BoolArray = short | (relative > OUTSIDE)
        if lone.sum() <= hostile and relative[~lone].max() <= WITHIN:
            near = (cdist(rows[lone], rows[lone]) <= WITHIN * apart.min()).sum(axis=1)
            smallest = np.bincount(nearest[~lone], minlength=num_clusters).min()
            if (near * counted[lone]).max(initial=0) <= smallest:
                return lone
    return none


def has_groups(rows: FloatArray, num_clusters: int, rng: np.random.Generator) -> bool:
    """Say whether rows fall into `num_clusters` groups and not into one less.

    The K-th group is real if it lowers the sum of squares S by much more than the next: S(K) / S(K - 1) <= `ELBOW`
    S(K + 1) / S(K). On digits the quotient of the two was 0.01 to 0.3 for the right K and 0.63 to 1.2 for one more.
    """
    if len(rows) < LEAST_CLIENTS * num_clusters:
        return False
    within = []
    for k in (num_clusters - 1, num_clusters, num_clusters + 1):
        found = cluster.cluster(rows, k, "kmeans", rng)
        within.append(float(np.square(rows - cluster.centroids(rows, found)[found]).sum()))
    fewer, same, more = within
    elbow = ELBOW if num_clusters > 2 else ELBOW_OF_TWO
    return same**2 <= elbow * fewer * more or same <= 1e-12 * fewer


def placed(rows: FloatArray, aside: BoolArray, group: Callable[[FloatArray], IntArray]) -> IntArray:
    """Return the clusters (M,) of rows: what `group` makes of those not set aside, and for the others the nearest."""
    found = np.empty(len(rows), dtype=np.int64)
    found[~aside] = group(rows[~aside])
    if aside.any():
        found[aside] = cluster.nearest_centroid(rows[aside], cluster.centroids(rows[~aside], found[~aside]))
    return found
