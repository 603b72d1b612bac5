"""Agglomerative clustering, its three cuts, and the placement of later clients."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from florets.strategies.core import FloatArray
from florets.strategies.core.agglomerative import (
    LINKAGES,
    group_below,
    group_by_largest_gap,
    group_into,
    merge_tree,
)
from florets.strategies.core.cluster import canonical
from florets.strategies.fedclust.strategy import FedClust
from florets.strategies.pacfl.strategy import PACFL
from florets.strategies.shared.linked_groups import LinkedGroups, extended
from florets.strategies.sr_fca.strategy import SRFCA

# Four clients on a line at 0, 1, 4 and 9.
LINE = np.abs(np.subtract.outer([0.0, 1.0, 4.0, 9.0], [0.0, 1.0, 4.0, 9.0]))


def random_distances(seed: int, size: int = 9) -> FloatArray:
    return squareform(pdist(np.random.default_rng(seed).standard_normal((size, 3))))


def by_hand(distances: FloatArray, threshold: float, method: str) -> set[frozenset[int]]:
    """Merge sets of clients one after the other, each distance taken from its definition."""
    clusters = {frozenset([i]): {frozenset([j]): distances[i, j] for j in range(len(distances))} for i in range(9)}
    while len(clusters) > 1:
        one, other = min(combinations(clusters, 2), key=lambda pair: clusters[pair[0]][pair[1]])
        if clusters[one][other] >= threshold:
            break
        rows = clusters.pop(one), clusters.pop(other)
        union, new = one | other, {}
        for rest in clusters:
            if method == "weighted":
                new[rest] = (rows[0][rest] + rows[1][rest]) / 2
            else:
                pairs = [distances[i, j] for i in union for j in rest]
                new[rest] = {"single": min, "complete": max, "average": np.mean}[method](pairs)  # type: ignore[operator]
            clusters[rest][union] = new[rest]
        clusters[union] = new
    return set(clusters)


def as_sets(clusters: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(clusters == one).tolist()) for one in np.unique(clusters)}


def test_distances_of_merged_clusters_are_those_of_the_linkage() -> None:
    heights = {method: merge_tree(LINE, method)[:, 2].tolist() for method in LINKAGES}
    assert heights["single"] == [1, 3, 5]
    assert heights["complete"] == [1, 4, 9]
    # Average counts all three clients at 0, 1 and 4 alike; weighted the pair and the third.
    assert heights["average"] == pytest.approx([1, 3.5, (9 + 8 + 5) / 3])
    assert heights["weighted"] == pytest.approx([1, 3.5, ((9 + 8) / 2 + 5) / 2])


@pytest.mark.parametrize("method", LINKAGES)
@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_those_of_merging_step_by_step(method: str, seed: int) -> None:
    distances = random_distances(seed)
    for threshold in (0.5, 1.2, 1.8, 2.5):
        assert as_sets(group_below(distances, threshold, method).clusters) == by_hand(distances, threshold, method)


@pytest.mark.parametrize("method", LINKAGES)
def test_another_order_of_the_clients_permutes_the_clusters_and_nothing_else(method: str) -> None:
    distances, order = random_distances(4), np.random.default_rng(1).permutation(9)
    moved = distances[np.ix_(order, order)]
    for group in (
        lambda d: group_below(d, 1.5, method),
        lambda d: group_into(d, 4, method),
        lambda d: group_by_largest_gap(d, method),
    ):
        whole, other = group(distances), group(moved)
        np.testing.assert_array_equal(canonical(whole.clusters[order]), other.clusters)
        assert other.threshold == pytest.approx(whole.threshold)


def test_a_threshold_of_0_leaves_equal_clients_alone_and_a_huge_one_merges_all() -> None:
    same = np.zeros((3, 3))
    assert group_below(same, 0.0, "average").clusters.tolist() == [0, 1, 2]
    assert group_below(same, 1e-9, "average").clusters.tolist() == [0, 0, 0]
    assert group_below(random_distances(0), 1e9, "complete").clusters.tolist() == [0] * 9
    assert group_below(np.zeros((1, 1)), 5.0, "single").clusters.tolist() == [0]


def test_a_number_of_clusters_comes_with_the_threshold_that_gives_it() -> None:
    assert group_into(LINE, 2, "single").clusters.tolist() == [0, 0, 0, 1]
    assert group_into(LINE, 2, "single").threshold == 4.0
    assert group_into(LINE, 1, "single").threshold == np.inf
    assert group_into(LINE, 9, "single").clusters.tolist() == [0, 1, 2, 3]
    for number in range(1, 10):
        found = group_into(random_distances(2), number, "average")
        assert found.clusters.max() + 1 == number
        np.testing.assert_array_equal(
            group_below(random_distances(2), found.threshold, "average").clusters, found.clusters
        )


def test_the_largest_gap_is_where_the_distances_jump() -> None:
    # Merges at 1, 1, 1 and 16: of 3 + 2 clients.
    points = np.array([0.0, 1.0, 2.0, 20.0, 21.0])
    found = group_by_largest_gap(np.abs(np.subtract.outer(points, points)), "single")
    assert (found.clusters.tolist(), found.threshold) == ([0, 0, 0, 1, 1], 9.5)
    # Gaps of 2 and 2: the fewer clusters.
    assert group_by_largest_gap(LINE, "single").clusters.tolist() == [0, 0, 0, 1]


def test_a_far_client_takes_the_gap_unless_two_clusters_have_to_be_larger() -> None:
    # Merges at 1, 1, 9 and 89.
    points = np.array([0.0, 1.0, 10.0, 11.0, 100.0])
    distances, order = np.abs(np.subtract.outer(points, points)), [4, 2, 0, 1, 3]
    for smallest, clusters in ((1, [0, 0, 0, 0, 1]), (2, [0, 0, 1, 1, 2]), (3, [0, 0, 0, 0, 0])):
        found = group_by_largest_gap(distances, "single", smallest)
        assert found.clusters.tolist() == clusters
        moved = group_by_largest_gap(distances[np.ix_(order, order)], "single", smallest)
        assert moved.clusters.tolist() == canonical(found.clusters[order]).tolist()
    assert group_by_largest_gap(LINE[:2, :2], "single", 2).clusters.tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_gap_that_counts_agrees_with_all_cuts_tried_out(seed: int) -> None:
    distances = random_distances(seed)
    heights = merge_tree(distances, "average")[:, 2]
    for smallest in range(1, 6):
        cuts = [(heights[9 - k] - heights[8 - k], group_into(distances, k, "average").clusters) for k in range(2, 9)]
        counted = [(gap, cut) for gap, cut in cuts if np.sum(np.bincount(cut) >= smallest) >= 2]
        expected = max(counted, key=lambda one: one[0])[1] if counted else np.zeros(9)
        assert group_by_largest_gap(distances, "average", smallest).clusters.tolist() == expected.tolist()


@pytest.mark.parametrize("algorithm", [PACFL, FedClust, SRFCA])
def test_methods_that_cut_a_tree_at_a_gap_ask_how_large_groups_are(algorithm: type[Any]) -> None:
    points = np.array([0.1, 1.0, 10.0, 11.1, 1000.0])
    distances = np.abs(np.subtract.outer(points, points))

    def cut(strategy: Any) -> list[int]:
        of_groups = isinstance(strategy.state, LinkedGroups)
        found = strategy.state._group(strategy, distances) if of_groups else strategy._group(distances)
        return list(found.clusters)

    assert cut(algorithm()) == [0, 0, 0, 0, 1]
    assert cut(algorithm(smallest_group=2)) == [0, 0, 1, 1, 2]
    with pytest.raises(ValueError, match=r"smallest_group=2: has an effect only with strategy\.cut=largest_gap"):
        algorithm(smallest_group=2, cut="k")


@pytest.mark.parametrize(
    ("distances", "clusters"),
    [
        (np.zeros((1, 1)), [0]),
        (np.zeros((2, 2)), [0, 0]),
        (LINE[:2, :2], [0, 1]),
        (np.zeros((4, 4)), [0, 0, 0, 0]),
        (1 - np.eye(4), [0, 0, 0, 0]),
    ],
    ids=["one", "two equal", "two", "equal", "equally far"],
)
def test_without_a_gap_there_is_a_defined_outcome(distances: FloatArray, clusters: list[int]) -> None:
    assert group_by_largest_gap(distances, "average").clusters.tolist() == clusters


def test_an_unknown_linkage_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'ward' is unknown: choose one of single, complete"):
        merge_tree(LINE, "ward")


# Later clients


def test_a_later_client_joins_the_model_that_most_of_its_cluster_have() -> None:
    clusters = np.array([0, 0, 0, 0, 1, 2, 2, 3])
    previous = np.array([1, 1, 0, -1, 2, -1, -1, -1])
    assert extended(clusters, previous).tolist() == [1, 1, 0, 1, 2, 3, 3, 4]
    # Among equals the lowest number.
    assert extended(np.zeros(3, dtype=np.int64), np.array([2, 0, -1])).tolist() == [2, 0, 0]


def test_without_any_model_the_clusters_are_the_models() -> None:
    clusters = np.array([0, 1, 0, 2])
    assert extended(clusters, np.full(4, -1)).tolist() == clusters.tolist()
