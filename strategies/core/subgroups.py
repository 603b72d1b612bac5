"""Sharpness of the groups of a discovery, and groups within groups.

Both are permutation tests in which clients change places within a fold, among the members of one group. If a group is
one distribution, all such permutations are equally likely.

**Sharp groups or a continuum.** Clients that differ by degrees, such as images rotated by any angle, are divided into
some groups all the same. Some members then lie nearer to the next group than others, and do so in every fold.
``t_f(i)`` is the coordinate of x_f(i), less its group's centre, on the direction to a neighbouring group's centre;
the statistic is the sum of t_f(i) t_g(i) over clients and pairs of folds f != g. Centres are means over the members,
which no permutation within groups changes: the test is exact given the groups. What members have of their own in
other directions, such as their shares of labels, plays no part.

**A tested tree.** Each group is searched for groups among its own members, again and again. A group of n of all M
clients is tested at n / M times the level. Groups without common members thus share one level, and what lies below a
group is tested only after a rejection: the level holds over the tree (Meinshausen 2008). Above the groups found
first the tree is that of their centres. A node there that is not rejected at its level, or nearly as high as the one
above, is left out.

Source: Meinshausen, Hierarchical testing of variable importance, 2008, for the levels of a tree of hypotheses.
Deviation: the groups are selected by the same data, so that they are not the fixed hypotheses of the theory;
simulated levels stay below the nominal one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_scores import centred_rows, gram_of
from florets.strategies.core.folds import discover, permutation_p_value, permutations_at

CONTINUUM_LEVEL = 0.01
LEAST_SPREAD = 0.01
"""Spread towards a neighbour, as a share of the squared distance to it, below which groups are sharp all the same.

Clients uniform on a straight line have 1/12. For angles, whose updates lie on a curve in many dimensions, 0.01 to
0.05 were measured; for sharp groups, with and without effects of their clients, at most 0.009.
"""
_ORDERS = 199


@dataclass(frozen=True)
class Spread:
    """Spread of members towards the neighbouring groups: see the head of this file.

    Attributes
    ----------
    p_value
        That members of a group are alike.
    share
        Variance of members in that direction, over the median squared distance of neighbouring centres; noise is
        taken off both. NaN where nobody has company.
    """

    p_value: float
    share: float

    @property
    def is_sharp(self) -> bool:
        """Whether the clients fall into groups, rather than differ by degrees."""
        return not (self.p_value <= CONTINUUM_LEVEL and self.share >= LEAST_SPREAD)


def spread(rows: FloatArray, labels: IntArray, rng: np.random.Generator) -> Spread:
    """Return the spread of the members of at least two groups `labels` (M,); `rows` (m, M, D) are centred."""
    num_folds = len(rows)
    order = np.argsort(labels, kind="stable")
    rows, labels = rows[:, order], labels[order]
    sizes = np.bincount(labels)
    centres = _centres(rows, labels)
    within, mean = rows - centres[:, labels], centres.mean(axis=0)
    apart = _squares(centres)
    np.fill_diagonal(apart, np.inf)
    coordinates = []
    # A group of a continuum has a neighbour on either side.
    for neighbour in np.argsort(apart, axis=1)[:, : min(2, len(sizes) - 1)].T:
        way = mean[neighbour] - mean
        length = np.linalg.norm(way, axis=1, keepdims=True)
        way /= np.where(length > 0.0, length, 1.0)
        coordinates.append(np.einsum("fid,id->fi", within, way[labels]))
    ways = np.stack(coordinates)  # (ways, m, M)
    own = float((ways**2).sum())

    def agreement(of: FloatArray) -> float:
        return float((of.sum(axis=1) ** 2).sum()) - own

    observed, reached = agreement(ways), 0
    for _ in range(_ORDERS):
        # Labels are sorted: within each label the order is random, and labels stay where they are.
        places = np.argsort(labels + rng.random(within.shape[:2]), axis=1)
        reached += agreement(np.take_along_axis(ways, places[None], axis=2)) >= observed - 1e-12 * own
    company = sizes > 1
    freedom = int((sizes - 1).sum()) * len(ways) * num_folds * (num_folds - 1)
    gap = float(np.median(apart.min(axis=1)[company])) if company.any() else np.nan
    share = observed / freedom / gap if freedom and gap > 0.0 else np.nan
    return Spread((reached + 1) / (_ORDERS + 1), share)


@dataclass(frozen=True)
class Node:
    """Clients that belong together in a tree of groups.

    Attributes
    ----------
    members : (n,) int64
        Rows of its clients.
    p_value
        That they are alike; NaN where that was not tested.
    height
        Distance of its parts' centres, noise taken off; 0 of a leaf.
    parts
        The groups into which it falls; none of a leaf.
    """

    members: IntArray
    p_value: float = math.nan
    height: float = 0.0
    parts: tuple["Node", ...] = ()

    @property
    def leaves(self) -> list["Node"]:
        """The groups that fall into no further groups."""
        return [leaf for part in self.parts for leaf in part.leaves] if self.parts else [self]

    @property
    def depth(self) -> int:
        """Levels of groups: 0 of a leaf."""
        return 1 + max(part.depth for part in self.parts) if self.parts else 0

    def labels(self, count: int) -> IntArray:
        """Return the leaf of each of `count` clients, numbered from 0 in order of first appearance."""
        found = np.zeros(count, dtype=np.int64)
        for number, leaf in enumerate(self.leaves):
            found[leaf.members] = number
        return canonical(found)


_SAME_LEVEL = 0.5
"""A division at this fraction of the squared distance above it, or more, is no separate level: of groups that differ
equally, some are nearest by chance."""
_LEAST_GAIN = 0.2
"""See `folds.number_of_groups`: larger than for all clients, as a group missed is divided one level down."""
_LEAST_TESTED = 4
"""Members of a group that is searched for groups: three cannot be two groups at such a level."""


def tree_of(
    folds: FloatArray,
    labels: IntArray,
    p_value: float,
    level: float,
    rng: np.random.Generator,
    tested: BoolArray,
) -> Node:
    """Return the tree of groups `labels` (M,), K at least 2, that were found in rows `folds` (M, m, D) at `level`.

    `p_value` is that of all clients, `tested` (M,) the clients of tests.
    """
    search = _Search(folds, level, rng, tested)
    return replace(search.above(np.arange(len(folds)), labels), p_value=p_value)


@dataclass(frozen=True)
class _Search:
    folds: FloatArray
    level: float
    rng: np.random.Generator
    tested: BoolArray

    def above(self, members: IntArray, labels: IntArray) -> Node:
        """Return the tree of groups of some members, from the tree of their centres."""
        groups = [self.below(members[labels == group]) for group in range(int(labels.max()) + 1)]
        squares = _squares(_centres(centred_rows(self.folds[members]), labels))
        nodes = list(groups)
        merges = linkage(squareform(np.maximum(squares, 0.0), checks=False), "average")
        for left, right, height, _ in merges.tolist():
            parts = (nodes[int(left)], nodes[int(right)])
            own = np.sort(np.concatenate([part.members for part in parts]))
            nodes.append(Node(own, height=math.sqrt(height), parts=parts))
        return self._levels(nodes[-1], {id(group) for group in groups})

    def _levels(self, node: Node, found: set[int]) -> Node:
        """Return the node with the parts of a part in its place where that is no separate level."""
        parts: list[Node] = []
        for part in node.parts:
            if id(part) in found:
                parts.append(part)
                continue
            inner = self._levels(part, found)
            is_level = inner.height**2 < _SAME_LEVEL * node.height**2
            if is_level and (p_value := self._test(inner.members)) <= self._level(inner.members):
                parts.append(replace(inner, p_value=p_value))
            else:
                parts += inner.parts
        return replace(node, parts=tuple(parts))

    def below(self, members: IntArray) -> Node:
        """Return a group with the groups among its members."""
        tested = self.tested[members]
        if np.count_nonzero(tested) < _LEAST_TESTED:
            return Node(members)
        level, rows = self._level(members), self.folds[members]
        found = discover(
            rows,
            None,
            level=level,
            least_gain=_LEAST_GAIN,
            permutations=permutations_at(level),
            rng=self.rng,
            tested=tested,
        )
        if found.verdict != "groups" or not spread(centred_rows(rows), found.labels, self.rng).is_sharp:
            return Node(members, found.p_value)
        return replace(self.above(members, found.labels), p_value=found.p_value)

    def _test(self, members: IntArray) -> float:
        own, level = members[self.tested[members]], self._level(members)
        if len(own) < _LEAST_TESTED:
            return math.nan
        return permutation_p_value(gram_of(centred_rows(self.folds[own])), level, permutations_at(level), self.rng)

    def _level(self, members: IntArray) -> float:
        return self.level * np.count_nonzero(self.tested[members]) / np.count_nonzero(self.tested)


def _centres(rows: FloatArray, labels: IntArray) -> FloatArray:
    """Return the mean row of each group in each fold, (m, K, D)."""
    member = np.eye(int(labels.max()) + 1)[labels]
    means: FloatArray = np.einsum("fid,ik->fkd", rows, member / member.sum(axis=0))
    return means


def _squares(centres: FloatArray) -> FloatArray:
    """Return the squared distances (K, K) of centres (m, K, D) without noise: products of different folds alone."""
    total = centres.sum(axis=0)
    products = total @ total.T - np.einsum("fkd,fld->kl", centres, centres)
    products /= len(centres) * (len(centres) - 1)
    energy = np.diagonal(products)
    squares: FloatArray = energy[:, None] + energy - 2.0 * products
    np.fill_diagonal(squares, 0.0)
    return squares
