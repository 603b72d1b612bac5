from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.strategies.core.cluster import canonical
from florets.strategies.core.matching import match_in_order, match_min_cost, match_overlap, summed_losses


def test_the_cost_of_a_cluster_is_the_sum_of_its_members_losses() -> None:
    losses = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    assert summed_losses(losses, np.array([0, 1, 0])).tolist() == [[8.0, 10.0, 12.0], [4.0, 5.0, 6.0]]


def test_the_matching_minimises_the_total_not_each_clusters_own_cost() -> None:
    # Both clusters like model 0 best; cluster 1 would lose more by giving it up.
    losses = np.array([[1.0, 2.0], [1.0, 9.0]])
    assert match_min_cost(losses, np.array([0, 1])).tolist() == [1, 0]


def test_clusters_weigh_by_their_members() -> None:
    losses = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.5]])
    assert match_min_cost(losses, np.array([0, 0, 1])).tolist() == [0, 1]


def test_fewer_clusters_than_models_leave_models_unmatched() -> None:
    losses = np.array([[5.0, 1.0, 3.0, 2.0], [5.0, 4.0, 0.0, 2.0]])
    assert match_min_cost(losses, np.array([0, 1])).tolist() == [1, 2]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2**31))
def test_no_permutation_of_models_is_cheaper(num_clusters: int, spare: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_models = num_clusters + spare
    clusters = canonical(np.concatenate([np.arange(num_clusters), rng.integers(num_clusters, size=5)]))
    losses = rng.random((len(clusters), num_models))
    costs = summed_losses(losses, clusters)
    models = match_min_cost(losses, clusters)
    rows = np.arange(num_clusters)
    cheapest = min(costs[rows, list(p)].sum() for p in permutations(range(num_models), num_clusters))
    assert len(set(models.tolist())) == num_clusters
    assert costs[rows, models].sum() == pytest.approx(cheapest)


@given(st.integers(0, 2**31))
def test_a_clients_model_depends_neither_on_its_place_nor_on_the_clusters_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clusters = np.array([0, 1, 2, 0, 1, 2, 0])
    losses = rng.random((7, 4))
    expected = match_min_cost(losses, clusters)[clusters]
    order, names = rng.permutation(7), rng.permutation(3)
    relabelled = names[clusters[order]]
    assert np.array_equal(match_min_cost(losses[order], relabelled)[relabelled], expected[order])


def test_a_diverged_model_is_matched_last() -> None:
    losses = np.array([[np.nan, 1.0, 3.0], [np.nan, 2.0, 1.0]])
    assert match_min_cost(losses, np.array([0, 1])).tolist() == [1, 2]


def test_most_clients_keep_the_model_that_they_had() -> None:
    clusters = np.array([0, 0, 0, 1, 1, 2])
    previous = np.array([2, 2, 1, 1, 1, -1])
    assert match_overlap(clusters, previous, 3).tolist() == [2, 1, 0]


def test_the_overlap_of_all_clients_is_maximised_over_every_matching() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        clusters = canonical(np.concatenate([np.arange(4), rng.integers(4, size=12)]))
        previous = rng.integers(-1, 5, size=16)
        kept = (match_overlap(clusters, previous, 5)[clusters] == previous).sum()
        best = max((np.array(p)[clusters] == previous).sum() for p in permutations(range(5), 4))
        assert kept == best


def test_clusters_without_any_history_get_different_models_and_the_same_ones_each_time() -> None:
    clusters, nobody = np.array([0, 1, 2]), np.array([-1, -1, -1])
    models = match_overlap(clusters, nobody, 4)
    assert len(set(models.tolist())) == 3
    assert np.array_equal(models, match_overlap(clusters, nobody, 4))


def test_without_matching_cluster_k_gets_model_k() -> None:
    assert match_in_order(3, 5).tolist() == [0, 1, 2]


def test_no_clients_need_no_models() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert match_min_cost(np.zeros((0, 3)), nothing).tolist() == []
    assert match_overlap(nothing, nothing, 3).tolist() == []
    assert match_in_order(0, 3).tolist() == []


def test_more_clusters_than_models_are_refused_by_every_matching() -> None:
    clusters = np.array([0, 1, 2])
    with pytest.raises(ValueError, match="3 clusters cannot be matched to 2 models"):
        match_min_cost(np.ones((3, 2)), clusters)
    with pytest.raises(ValueError, match="ask for at most 2 clusters"):
        match_overlap(clusters, clusters, 2)
    with pytest.raises(ValueError, match="3 clusters"):
        match_in_order(3, 2)
