"""FINCH by hand, and against its adjacency written out; the rules for K of CLoVE's released code."""

import itertools

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import silhouette_score

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core import cluster as module
from florets.strategies.core.choose_k import choose_k
from florets.strategies.core.cluster import canonical, cluster, distinct_rows, finch, first_partition


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def column(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)[:, np.newaxis]


def by_adjacency(rows: FloatArray) -> IntArray:
    """The paper's equation word for word: j is i's first neighbour, or i is j's, or both have the same one."""
    distances = np.linalg.norm(rows[:, np.newaxis] - rows, axis=2)
    np.fill_diagonal(distances, np.inf)
    first = distances.argmin(axis=1)
    linked = np.eye(len(rows), dtype=bool)
    for i, j in itertools.permutations(range(len(rows)), 2):
        linked[i, j] = j == first[i] or first[j] == i or first[i] == first[j]
    for _ in rows:
        linked = linked @ linked
    return canonical(linked.argmax(axis=1))


def by_hierarchy(rows: FloatArray, wanted: int) -> IntArray:
    """All partitions, and the last with enough groups merged by the nearest means."""
    partitions = [np.arange(len(rows))]
    while partitions[-1].max() > 0:
        groups = partitions[-1]
        means = np.array([rows[groups == group].mean(axis=0) for group in range(groups.max() + 1)])
        partitions.append(by_adjacency(means)[groups])
    groups = [groups for groups in partitions if groups.max() + 1 >= wanted][-1]
    while groups.max() + 1 > wanted:
        means = [rows[groups == group].mean(axis=0) for group in range(groups.max() + 1)]
        pairs = itertools.combinations(range(len(means)), 2)
        one, other = min(pairs, key=lambda pair: float(np.linalg.norm(means[pair[0]] - means[pair[1]])))
        groups = canonical(np.where(groups == other, one, groups))
    return canonical(groups)


def test_first_neighbours_worked_out_by_hand() -> None:
    # 0 and 1 choose each other, 3 chooses 1; 10 and 11 choose each other.
    assert canonical(first_partition(column(0, 10, 1, 3, 11))).tolist() == [0, 1, 0, 0, 1]
    assert first_partition(column(5)).tolist() == [0]
    assert first_partition(np.zeros((0, 2))).tolist() == []


def test_pairs_are_merged_by_their_means_and_larger_groups_weigh_more() -> None:
    # Groups {0, 1, 1.5}, {10, 11}, {14, 15.2}: the means of the last two are nearest.
    rows = column(0, 1, 1.5, 10, 11, 14, 15.2)
    assert cluster(rows, 3, "finch", rng()).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert cluster(rows, 2, "finch", rng()).tolist() == [0, 0, 0, 1, 1, 1, 1]
    # More than the first partition has: distinct rows are merged, nearest first.
    assert cluster(rows, 6, "finch", rng()).tolist() == [0, 1, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_papers_algorithm(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rng(seed).standard_normal((24, 3))
    assert np.array_equal(canonical(first_partition(rows)), by_adjacency(rows))
    for wanted in (1, 2, 5, 15):
        found = canonical(finch(rows, distinct_rows(rows), wanted))
        assert np.array_equal(found, by_hierarchy(rows, wanted))
    # Rows are compared chunk by chunk where there are many.
    monkeypatch.setattr(module, "_PAIRS", 100)
    assert np.array_equal(canonical(first_partition(rows)), by_adjacency(rows))


def test_its_first_partition_chooses_k_whatever_the_clusters_are() -> None:
    vectors = column(0, 1, 10, 11, 20, 21, 30, 31)
    assert choose_k(vectors, 10, "finch", 0.0, rng()) == 4
    assert choose_k(vectors, 3, "finch", 0.0, rng()) == 3
    assert choose_k(column(1, 2), 5, "finch", 0.0, rng()) == 1
    assert choose_k(np.zeros((0, 2)), 5, "finch", 0.0, rng()) == 1


def released_rule(vectors: FloatArray, k_max: int) -> int:
    """The rule as its description has it, with scikit-learn's clustering and score."""
    most = min(len(vectors), k_max)
    judged = np.concatenate([vectors] * 5) if most >= len(vectors) else vectors
    best, best_score = 1, -1.0
    for number in range(2, most + 1):
        score = silhouette_score(judged, AgglomerativeClustering(number, linkage="ward").fit_predict(judged))
        if score > 1.10 * best_score:
            best, best_score = number, score
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_released_rule_for_k_is_the_one_described(seed: int) -> None:
    for rows, k_max in ((7, 10), (8, 8), (12, 6)):
        vectors = rng(seed).standard_normal((rows, 4))
        assert choose_k(vectors, k_max, "silhouette_repeated", 0.0, rng()) == released_rule(vectors, k_max)


def test_the_released_rule_takes_one_cluster_a_row_where_two_are_clear() -> None:
    truth = np.repeat(np.arange(2), 4)
    vectors = 2.0 - np.eye(10)[truth] + 0.3 * rng(1).standard_normal((8, 10))
    assert choose_k(vectors, 10, "silhouette", 0.0, rng()) == 2
    assert choose_k(vectors, 10, "silhouette_repeated", 0.0, rng()) == 8
