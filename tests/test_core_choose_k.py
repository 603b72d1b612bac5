import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import silhouette_score

from florets.strategies.core import FloatArray
from florets.strategies.core.cluster import choose_k


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(num_clusters: int, size: int, seed: int = 0, spread: float = 0.05, width: int = 10) -> FloatArray:
    truth = np.repeat(np.arange(num_clusters), size)
    return 2.0 - np.eye(width)[truth] + spread * rng(seed).standard_normal((len(truth), width))


@pytest.mark.parametrize("num_clusters", [2, 3, 5, 8, 10])
def test_the_number_of_separated_clusters_is_found(num_clusters: int) -> None:
    vectors = blobs(num_clusters, 5, seed=num_clusters)
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
def test_small_and_repeated_inputs_have_a_defined_outcome(rows: list[list[float]], expected: int) -> None:
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
    vectors = blobs(4, 600)
    first = choose_k(vectors, 6, rng(1))
    assert first == choose_k(vectors, 6, rng(1)) == 4


@settings(max_examples=40, deadline=None)
@given(
    vectors=st.integers(0, 8).flatmap(lambda m: arrays(np.float64, (m, 2), elements=st.floats(0, 1e3))),
    k_max=st.integers(1, 9),
)
def test_the_choice_is_within_its_bounds_for_any_vectors(vectors: FloatArray, k_max: int) -> None:
    chosen = choose_k(vectors, k_max, rng())
    distinct = len(np.unique(vectors, axis=0))
    assert 1 <= chosen <= max(1, min(k_max, distinct))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="k_max is 0"):
        choose_k(np.zeros((3, 2)), 0, rng())
