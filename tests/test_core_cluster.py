import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.cluster.hierarchy import fcluster

from florets.strategies.core import FloatArray
from florets.strategies.core import cluster as module
from florets.strategies.core.cluster import (
    METHODS,
    canonical,
    centroids,
    cluster,
    cut,
    finite_losses,
    nearest_centroid,
    of_cohort,
    ward,
    ward_tree,
    within_sums,
)
from florets.strategies.core.metrics import adjusted_rand_index

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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_separated_clusters_are_found_whatever_the_order_of_the_clients(method: str, seed: int) -> None:
    vectors, truth = blobs(seed)
    order = rng(seed).permutation(len(truth))
    found = cluster(vectors[order], 4, method, rng(seed))
    assert np.array_equal(found, canonical(truth[order]))


@pytest.mark.parametrize("method", METHODS)
def test_a_shift_common_to_all_loss_vectors_changes_nothing(method: str) -> None:
    vectors, truth = blobs(3)
    shifted = cluster(vectors + np.array([5.0, 0.0, 2.0, -1.0]), 4, method, rng())
    assert np.array_equal(shifted, truth)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("rows", "num_clusters", "expected"),
    [
        ([], 3, []),
        ([[1.0, 2.0]], 1, [0]),
        ([[1.0, 2.0]], 3, [0]),
        ([[1.0, 2.0], [3.0, 4.0]], 1, [0, 0]),
        ([[1.0, 2.0], [3.0, 4.0]], 2, [0, 1]),
        ([[1.0, 2.0], [1.0, 2.0]], 2, [0, 0]),
        ([[7.0, 0.0], [1.0, 0.0], [7.0, 0.0], [1.0, 0.0]], 3, [0, 1, 0, 1]),
        ([[9.0, 0.0], [0.0, 0.0], [5.0, 0.0]], 3, [0, 1, 2]),
        ([[0.0, 0.0], [-0.0, 0.0], [1.0, 0.0]], 2, [0, 0, 1]),
    ],
)
def test_small_and_repeated_inputs_have_a_defined_outcome(
    method: str, rows: list[list[float]], num_clusters: int, expected: list[int]
) -> None:
    found = cluster(np.array(rows).reshape(-1, 2), num_clusters, method, rng())
    assert found.dtype == np.int64
    assert found.tolist() == expected


@pytest.mark.parametrize("method", METHODS)
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


def test_rows_that_differ_only_in_their_last_bits_give_no_warning() -> None:
    vectors = 1e8 + np.array([[0.0], [1e-8 * 2], [4e-8], [1.0]])
    found = cluster(vectors, 3, "kmeans", rng())
    assert np.array_equal(found, canonical(found))


def test_k_means_with_equal_seeds_gives_equal_clusters_for_many_clients() -> None:
    vectors = rng(1).standard_normal((700, 5))
    assert np.array_equal(cluster(vectors, 6, "kmeans", rng(7)), cluster(vectors, 6, "kmeans", rng(7)))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="num_clusters is 0"):
        cluster(np.zeros((3, 2)), 0, "kmeans", rng())
    with pytest.raises(ValueError, match="'spectral' is unknown: choose one of kmeans, agglomerative"):
        cluster(np.zeros((3, 2)), 2, "spectral", rng())


def test_canonical_numbers_groups_by_their_first_client() -> None:
    assert canonical(np.array([5, 5, 2, 9, 2])).tolist() == [0, 0, 1, 2, 1]
    assert canonical(np.zeros(0, dtype=np.int64)).tolist() == []


@given(st.lists(st.integers(-3, 3), max_size=8), st.permutations(range(7)))
def test_canonical_forms_agree_exactly_when_the_groupings_do(labels: list[int], names: list[int]) -> None:
    relabelled = [names[label + 3] for label in labels]
    left, right = canonical(np.array(labels, dtype=int)), canonical(np.array(relabelled, dtype=int))
    assert np.array_equal(left, right)


def test_centroids_are_the_means_of_the_members() -> None:
    vectors = np.array([[0.0, 2.0], [4.0, 0.0], [2.0, 4.0]])
    assert centroids(vectors, np.array([0, 1, 0])).tolist() == [[1.0, 3.0], [4.0, 0.0]]


def test_a_newcomer_joins_the_nearest_centroid_and_the_first_of_equals() -> None:
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    newcomers = np.array([[0.5, 0.0], [1.0, 3.0], [2.0, 1.0]])
    assert nearest_centroid(newcomers, centres).tolist() == [0, 0, 1]
    assert nearest_centroid(np.zeros((0, 2)), centres).tolist() == []


def test_nan_and_infinity_count_as_the_largest_finite_loss() -> None:
    losses = np.array([[1.0, np.nan], [np.inf, 3.0]])
    assert finite_losses(losses).tolist() == [[1.0, 3.0], [3.0, 3.0]]
    assert np.isnan(losses[0, 1]), "the argument must not be changed"
    assert finite_losses(np.full((2, 2), np.nan)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert finite_losses(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("method", METHODS)
def test_a_diverged_model_does_not_disturb_the_clusters_of_the_others(method: str) -> None:
    vectors, truth = blobs(1)
    vectors[:, 2] = np.nan
    # Cluster 2 is then known by its high loss on the three models that are left.
    assert adjusted_rand_index(truth.tolist(), cluster(vectors, 4, method, rng()).tolist()) == 1.0


def test_ward_sums_equal_the_sums_of_squares_of_its_cuts() -> None:
    vectors = rng(5).standard_normal((12, 3))
    tree = ward_tree(vectors)
    sums = within_sums(tree)
    for num_clusters in range(1, 13):
        labels = cut(tree, num_clusters)
        assert len(np.unique(labels)) == num_clusters
        direct = sum(((vectors[labels == c] - vectors[labels == c].mean(0)) ** 2).sum() for c in np.unique(labels))
        assert sums[num_clusters - 1] == pytest.approx(direct, abs=1e-12)


def test_cuts_agree_with_scipy_where_merges_have_different_distances() -> None:
    tree = ward_tree(rng(6).standard_normal((20, 2)))
    for num_clusters in range(1, 21):
        theirs = fcluster(tree, num_clusters, criterion="maxclust")
        assert np.array_equal(canonical(cut(tree, num_clusters)), canonical(theirs))


def test_a_cut_gives_all_clusters_asked_for_where_merges_tie() -> None:
    tree = ward_tree(np.eye(6))
    assert [len(np.unique(cut(tree, k))) for k in range(1, 7)] == [1, 2, 3, 4, 5, 6]


def test_a_cohort_is_merged_and_every_row_is_placed_by_its_centroids() -> None:
    rows = np.array([[0.0], [1.0], [9.0], [10.0], [4.0], [4.9]])

    class Drawn:
        """A generator that draws rows 3, 0 and 2."""

        def choice(self, count: int, size: int, replace: bool) -> np.ndarray:
            assert (count, size, replace) == (6, 3, False)
            return np.array([3, 0, 2])

    # Of 0, 9 and 10 Ward merges 9 and 10: centroids 0 and 9.5, with the border at 4.75.
    assert of_cohort(rows, 2, 3, Drawn()).tolist() == [0, 0, 1, 1, 0, 1]  # type: ignore[arg-type]  # a double
    # Three different rows, four clusters: each is a cluster of its own, with borders at 4.5 and 9.5.
    assert of_cohort(rows, 4, 3, Drawn()).tolist() == [0, 0, 1, 2, 0, 1]  # type: ignore[arg-type]  # a double


def test_above_a_number_of_rows_ward_merges_a_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, truth = blobs(3, size=30)
    whole = cluster(vectors, 4, "agglomerative", rng())
    assert np.array_equal(whole, ward(vectors, 4))
    monkeypatch.setattr(module, "MOST_MERGED", 40)
    sampled = cluster(vectors, 4, "agglomerative", rng())
    assert adjusted_rand_index(truth.tolist(), sampled.tolist()) == 1.0
    # Rows that are equal share a cluster, whoever was drawn.
    doubled = cluster(np.concatenate([vectors, vectors]), 4, "agglomerative", rng())
    assert np.array_equal(doubled[:120], doubled[120:])
