"""Clustering on arrays: k-means, Ward, the number of clusters, matching, random assignments, agreement, errors."""

import warnings
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from florets.strategies.base.models import orthonormal_rows
from florets.strategies.core import FloatArray
from florets.strategies.core import cluster as module
from florets.strategies.core.cluster import canonical, choose_k, cluster, finite_losses, match_min_cost, match_overlap
from florets.strategies.core.kmeans import kmeans
from florets.strategies.core.metrics import adjusted_rand_index, model_error
from florets.strategies.shared.first_round import random_assignment
from florets.zoo.shared.agglomerative import group_by_largest_gap, group_into, merge_tree

any_vectors = st.integers(0, 8).flatmap(
    lambda rows: arrays(np.float64, (rows, 2), elements=st.floats(-1e6, 1e6, allow_subnormal=False))
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(seed: int, num_clusters: int = 4, size: int = 6) -> tuple[FloatArray, np.ndarray]:
    """Loss vectors of well-separated clusters: low on the cluster's own model, high on the others."""
    truth = np.repeat(np.arange(num_clusters), size)
    vectors = 2.0 - np.eye(num_clusters)[truth] + 0.05 * rng(seed).standard_normal((len(truth), num_clusters))
    return vectors, truth


def test_kmeans_is_that_of_scikit_learn() -> None:
    draws = rng(1)
    for seed in range(12):
        rows = draws.normal(size=(30 + seed, 3)) + 2 * draws.integers(0, 3, size=(30 + seed, 1))
        weights = draws.uniform(1, 9, size=len(rows)) if seed % 2 else None
        theirs = KMeans(2 + seed % 6, n_init=10, random_state=seed).fit_predict(rows, sample_weight=weights)
        own = kmeans(rows, 2 + seed % 6, seed, weights)
        assert np.array_equal(canonical(own), canonical(theirs.astype(np.int64)))


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
@pytest.mark.parametrize("seed", range(5))
def test_separated_clusters_are_found_whatever_the_order_of_the_clients(method: str, seed: int) -> None:
    vectors, truth = blobs(seed)
    order = rng(seed).permutation(len(truth))
    found = cluster(vectors[order], 4, method, rng(seed))
    assert np.array_equal(found, canonical(truth[order]))


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
@pytest.mark.parametrize(
    ("rows", "num_clusters", "expected"),
    [
        ([], 3, []),
        ([[1.0, 2.0]], 1, [0]),
        ([[1.0, 2.0], [3.0, 4.0]], 2, [0, 1]),
        ([[7.0, 0.0], [1.0, 0.0], [7.0, 0.0], [1.0, 0.0]], 3, [0, 1, 0, 1]),
        ([[0.0, 0.0], [-0.0, 0.0], [1.0, 0.0]], 2, [0, 0, 1]),
    ],
)
def test_small_and_repeated_inputs_have_a_defined_outcome(
    method: str, rows: list[list[float]], num_clusters: int, expected: list[int]
) -> None:
    found = cluster(np.array(rows).reshape(-1, 2), num_clusters, method, rng())
    assert found.dtype == np.int64
    assert found.tolist() == expected


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
@settings(max_examples=25, deadline=None)
@given(vectors=any_vectors, num_clusters=st.integers(1, 9))
def test_clusters_are_canonical_without_gaps_and_never_split_equal_rows(
    method: str, vectors: FloatArray, num_clusters: int
) -> None:
    found = cluster(vectors, num_clusters, method, rng())
    assert np.array_equal(found, canonical(found))
    assert len(np.unique(found)) <= num_clusters
    for row in range(len(vectors)):
        equal = (vectors == vectors[row]).all(axis=1)
        assert len(set(found[equal].tolist())) == 1


def test_nan_and_infinity_count_as_the_largest_finite_loss() -> None:
    losses = np.array([[1.0, np.nan], [np.inf, 3.0]])
    assert finite_losses(losses).tolist() == [[1.0, 3.0], [3.0, 3.0]]
    assert np.isnan(losses[0, 1]), "the argument must not be changed"
    assert finite_losses(np.full((2, 2), np.nan)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert finite_losses(np.zeros((0, 3))).shape == (0, 3)


def test_above_a_number_of_rows_ward_merges_a_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, truth = blobs(3, size=30)
    monkeypatch.setattr(module, "MOST_MERGED", 40)
    sampled = cluster(vectors, 4, "agglomerative", rng())
    assert adjusted_rand_index(truth.tolist(), sampled.tolist()) == 1.0
    # Rows that are equal share a cluster, whoever was drawn.
    doubled = cluster(np.concatenate([vectors, vectors]), 4, "agglomerative", rng())
    assert np.array_equal(doubled[:120], doubled[120:])


# Four clients on a line at 0, 1, 4 and 9.
LINE = np.abs(np.subtract.outer([0.0, 1.0, 4.0, 9.0], [0.0, 1.0, 4.0, 9.0]))


def random_distances(seed: int, size: int = 9) -> FloatArray:
    return squareform(pdist(np.random.default_rng(seed).standard_normal((size, 3))))


def test_distances_of_merged_clusters_are_those_of_the_linkage() -> None:
    linkages = ("single", "complete", "average", "weighted")
    heights = {method: merge_tree(LINE, method)[:, 2].tolist() for method in linkages}
    assert heights["single"] == [1, 3, 5]
    assert heights["complete"] == [1, 4, 9]
    # Average counts all three clients at 0, 1 and 4 alike; weighted the pair and the third.
    assert heights["average"] == pytest.approx([1, 3.5, (9 + 8 + 5) / 3])
    assert heights["weighted"] == pytest.approx([1, 3.5, ((9 + 8) / 2 + 5) / 2])


def test_the_largest_gap_is_where_the_distances_jump() -> None:
    # Merges at 1, 1, 1 and 16: of 3 + 2 clients.
    points = np.array([0.0, 1.0, 2.0, 20.0, 21.0])
    found = group_by_largest_gap(np.abs(np.subtract.outer(points, points)), "single")
    assert (found.clusters.tolist(), found.threshold) == ([0, 0, 0, 1, 1], 9.5)
    # Gaps of 2 and 2: the fewer clusters.
    assert group_by_largest_gap(LINE, "single").clusters.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_gap_agrees_with_all_cuts_tried_out(seed: int) -> None:
    distances = random_distances(seed)
    heights = merge_tree(distances, "average")[:, 2]
    cuts = [(heights[9 - k] - heights[8 - k], group_into(distances, k, "average").clusters) for k in range(2, 9)]
    expected = max(cuts, key=lambda one: one[0])[1]
    assert group_by_largest_gap(distances, "average").clusters.tolist() == expected.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2**31))
def test_no_permutation_of_models_is_cheaper(num_clusters: int, spare: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_models = num_clusters + spare
    clusters = canonical(np.concatenate([np.arange(num_clusters), rng.integers(num_clusters, size=5)]))
    losses = rng.random((len(clusters), num_models))
    costs = np.stack([losses[clusters == one].sum(axis=0) for one in range(num_clusters)])
    models = match_min_cost(losses, clusters)
    rows = np.arange(num_clusters)
    cheapest = min(costs[rows, list(p)].sum() for p in permutations(range(num_models), num_clusters))
    assert len(set(models.tolist())) == num_clusters
    assert costs[rows, models].sum() == pytest.approx(cheapest)


def test_the_overlap_of_all_clients_is_maximised_over_every_matching() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        clusters = canonical(np.concatenate([np.arange(4), rng.integers(4, size=12)]))
        previous = rng.integers(-1, 5, size=16)
        kept = (match_overlap(clusters, previous, 5)[clusters] == previous).sum()
        best = max((np.array(p)[clusters] == previous).sum() for p in permutations(range(5), 4))
        assert kept == best


groupings = st.integers(2, 12).flatmap(
    lambda m: st.tuples(*[st.lists(st.integers(0, 3), min_size=m, max_size=m)] * 2)
)


@given(st.integers(0, 20), st.integers(1, 8), st.integers(0, 2**31))
def test_a_random_assignment_leaves_out_no_model_needlessly(clients: int, models: int, seed: int) -> None:
    drawn = random_assignment(clients, models, np.random.default_rng(seed))
    assert drawn.shape == (clients,)
    assert drawn.dtype == np.int64
    assert len(np.unique(drawn)) == min(clients, models)
    assert all(0 <= model < models for model in drawn)


@given(groupings)
def test_the_adjusted_rand_index_equals_scikit_learns(pair: tuple[list[int], list[int]]) -> None:
    true, found = pair
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns where most groups hold one client.
        theirs = adjusted_rand_score(true, found)
    assert adjusted_rand_index(true, found) == pytest.approx(theirs)


def test_the_adjusted_rand_index_of_small_cases_is_as_documented() -> None:
    assert adjusted_rand_index([], []) is None
    assert adjusted_rand_index([0], [3]) is None
    assert adjusted_rand_index([0, 0, 1, 1], [5, 5, 2, 2]) == 1.0
    assert adjusted_rand_index([0, 0, 0], [1, 1, 1]) == 1.0
    assert adjusted_rand_index([0, 1, 2], [2, 1, 0]) == 1.0
    assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 2, 3]) == 0.0
    assert adjusted_rand_index([0, 0, 1, 1], [0, 0, 0, 0]) == 0.0
    assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == -0.5
    with pytest.raises(ValueError, match="3 true and 2 found"):
        adjusted_rand_index([0, 1, 2], [0, 1])


def test_orthonormal_rows_of_a_case_worked_out_by_hand() -> None:
    rows = orthonormal_rows(np.array([[2.0, 0.0], [3.0, -4.0]]))
    assert rows == pytest.approx(np.array([[2.0, 0.0], [0.0, -5.0]]))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), st.integers(0, 1000))
def test_it_is_the_minimum_over_all_permutations(count, more, seed):
    rng = np.random.default_rng(seed)
    true_models, bank = rng.integers(3, size=(count, 2)) * 1.0, rng.integers(3, size=(count + more, 2)) * 1.0
    expected = min(
        np.linalg.norm(bank[list(order)] - true_models, axis=1).max()
        for order in permutations(range(count + more), count)
    )
    assert model_error(bank, true_models) == pytest.approx(expected)
    assert model_error(bank[rng.permutation(count + more)], true_models) == pytest.approx(expected)


def separated(num_clusters: int, size: int, seed: int = 0, spread: float = 0.05, width: int = 10) -> FloatArray:
    truth = np.repeat(np.arange(num_clusters), size)
    return 2.0 - np.eye(width)[truth] + spread * rng(seed).standard_normal((len(truth), width))


@pytest.mark.parametrize("num_clusters", [2, 3, 5, 8, 10])
def test_the_number_of_separated_clusters_is_found(num_clusters: int) -> None:
    vectors = separated(num_clusters, 5, seed=num_clusters)
    assert choose_k(vectors, 10, rng()) == num_clusters


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], 1),
        ([[1.0, 2.0]], 1),
        ([[1.0, 2.0]] * 4, 1),
        ([[1.0, 2.0], [1.0, 3.0]], 2),
        ([[1.0, 2.0]] * 3 + [[1.0, 3.0]], 2),
    ],
)
def test_of_small_and_repeated_inputs_the_number_is_defined(rows: list[list[float]], expected: int) -> None:
    assert choose_k(np.array(rows).reshape(-1, 2), 5, rng()) == expected


def test_the_silhouette_never_leaves_every_client_alone() -> None:
    # Three clients that are all different: K = 3 is not defined for the silhouette, K = 2 is the only candidate.
    assert choose_k(np.array([[0.0], [1.0], [9.0]]), 5, rng()) == 2
    assert choose_k(np.eye(3), 5, rng()) == 2


@pytest.mark.parametrize("seed", range(3))
def test_the_silhouette_rule_equals_the_algorithm_written_with_scikit_learn(seed: int) -> None:
    vectors = rng(seed).standard_normal((25, 4))
    scores = {
        k: silhouette_score(vectors, AgglomerativeClustering(k, linkage="ward").fit_predict(vectors))
        for k in range(2, 11)
    }
    assert choose_k(vectors, 10, rng()) == max(scores, key=lambda k: (scores[k], -k))


def test_many_clients_are_judged_on_a_seeded_sample() -> None:
    vectors = separated(4, 600)
    first = choose_k(vectors, 6, rng(1))
    assert first == choose_k(vectors, 6, rng(1)) == 4
