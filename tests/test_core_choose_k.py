import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import silhouette_score

from florets.strategies.core import FloatArray
from florets.strategies.core import choose_k as module
from florets.strategies.core.choose_k import choose_k

JUDGING = ("silhouette", "silhouette_lone", "elbow")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(num_clusters: int, size: int, seed: int = 0, spread: float = 0.05, width: int = 10) -> FloatArray:
    truth = np.repeat(np.arange(num_clusters), size)
    return 2.0 - np.eye(width)[truth] + spread * rng(seed).standard_normal((len(truth), width))


@pytest.mark.parametrize("rule", JUDGING)
@pytest.mark.parametrize("num_clusters", [2, 3, 5, 8, 10])
def test_the_number_of_separated_clusters_is_found(rule: str, num_clusters: int) -> None:
    vectors = blobs(num_clusters, 5, seed=num_clusters)
    assert choose_k(vectors, 10, rule, 0.0, rng()) == num_clusters


@pytest.mark.parametrize("rule", JUDGING)
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
def test_small_and_repeated_inputs_have_a_defined_outcome(rule: str, rows: list[list[float]], expected: int) -> None:
    assert choose_k(np.array(rows).reshape(-1, 2), 5, rule, 0.0, rng()) == expected


def test_the_silhouette_never_leaves_every_client_alone() -> None:
    # Three clients that are all different: K = 3 is not defined for the silhouette, K = 2 is the only candidate.
    assert choose_k(np.array([[0.0], [1.0], [9.0]]), 5, "silhouette", 0.0, rng()) == 2
    assert choose_k(np.eye(3), 5, "silhouette", 0.0, rng()) == 2


@pytest.mark.parametrize("seed", range(3))
def test_the_silhouette_rule_equals_the_algorithm_written_with_scikit_learn(seed: int) -> None:
    vectors = rng(seed).standard_normal((25, 4))
    scores = {
        k: silhouette_score(vectors, AgglomerativeClustering(k, linkage="ward").fit_predict(vectors))
        for k in range(2, 11)
    }
    assert choose_k(vectors, 10, "silhouette", 0.0, rng()) == max(scores, key=lambda k: (scores[k], -k))


def test_a_larger_k_must_improve_by_the_share_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def scored(scores: list[float], min_improvement: float) -> int:
        given_scores = iter(scores)
        monkeypatch.setattr(module, "_score", lambda *_: next(given_scores))
        return choose_k(np.arange(20.0).reshape(-1, 1), 4, "silhouette", min_improvement, rng())

    assert scored([0.50, 0.54, 0.56], 0.0) == 4
    assert scored([0.50, 0.54, 0.56], 0.1) == 4
    assert scored([0.50, 0.54, 0.54], 0.1) == 2
    # A negative score must rise as well: 10 % better than -0.5 is above -0.45.
    assert scored([-0.50, -0.54, -0.46], 0.1) == 2
    assert scored([-0.50, -0.44, -0.44], 0.1) == 3
    assert scored([0.50, 0.50, 0.50], 0.0) == 2
    # A tolerance is measured from the highest score, so that small losses do not add up.
    assert scored([0.50, 0.48, 0.46], -0.05) == 3
    assert scored([0.50, 0.40, 0.49], -0.05) == 4


def test_a_rule_for_lone_clients_does_not_depend_on_the_number_of_clusters() -> None:
    # All 20 clusters, 5 clients each, then only 50 of the clients: some clusters have one, some none.
    vectors = blobs(20, 5, width=25, spread=0.02)
    assert (
        choose_k(vectors, 25, "silhouette_lone", 0.0, rng()) == choose_k(vectors, 25, "silhouette", 0.0, rng()) == 20
    )
    assert choose_k(vectors, 25, "silhouette", -0.05, rng()) > 20
    few = rng().choice(100, 50, replace=False)
    present = len(set((few // 5).tolist()))
    assert choose_k(vectors[few], 25, "silhouette_lone", 0.0, rng()) == present


def test_the_silhouette_of_a_lone_client_is_worked_out_by_hand() -> None:
    # Pairs at 0, 1 and a lone row at 11: within 1, nearest mean distance 10.5, so 9.5 / 10.5 in place of 0.
    distances = np.abs(np.subtract.outer([0.0, 1.0, 11.0], [0.0, 1.0, 11.0]))
    expected = (10 / 11 + 9 / 10 + 9.5 / 10.5) / 3
    assert module._score_with_lone(distances, np.array([0, 0, 1])) == pytest.approx(expected)


def test_the_elbow_is_the_knee_of_a_curve_worked_out_by_hand() -> None:
    # One coordinate, pairs around 0 and 10: the sums for K = 1..4 are 101, 1, 0.5, 0; the knee is at 2.
    vectors = np.array([[-0.5], [0.5], [9.5], [10.5]])
    assert choose_k(vectors, 3, "elbow", 0.0, rng()) == 2


@pytest.mark.parametrize("rule", JUDGING)
def test_many_clients_are_judged_on_a_seeded_sample(rule: str) -> None:
    vectors = blobs(4, 600)
    first = choose_k(vectors, 6, rule, 0.0, rng(1))
    assert first == choose_k(vectors, 6, rule, 0.0, rng(1)) == 4


@pytest.mark.parametrize("rule", JUDGING)
@settings(max_examples=40, deadline=None)
@given(
    vectors=st.integers(0, 8).flatmap(lambda m: arrays(np.float64, (m, 2), elements=st.floats(0, 1e3))),
    k_max=st.integers(1, 9),
)
def test_the_choice_is_within_its_bounds_for_any_vectors(rule: str, vectors: FloatArray, k_max: int) -> None:
    chosen = choose_k(vectors, k_max, rule, 0.0, rng())
    distinct = len(np.unique(vectors, axis=0))
    assert 1 <= chosen <= max(1, min(k_max, distinct))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="k_max is 0"):
        choose_k(np.zeros((3, 2)), 0, "silhouette", 0.0, rng())
