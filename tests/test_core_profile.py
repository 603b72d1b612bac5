"""The gradient profile and what follows from its inner products, against the SVD and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.strategies.cfl_gp import profile as profile_module
from florets.strategies.cfl_gp import spectral
from florets.strategies.cfl_gp.profile import GradientProfile, mixing, relative_distances
from florets.strategies.cfl_gp.spectral import estimate_k, singular_values, spectral_features
from florets.strategies.core.cluster import cluster
from florets.strategies.core.metrics import adjusted_rand_index


def filled(blocks: list[np.ndarray]) -> GradientProfile:
    """A profile of K blocks (M, d), each refreshed once by all clients."""
    profile = GradientProfile.empty(len(blocks), blocks[0].shape[1])
    profile.add_clients(len(blocks[0]))
    for index, block in enumerate(blocks):
        profile.refresh(index, np.arange(len(block)), list(block))
    return profile


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_the_features_are_those_of_the_svd(num_blocks, num_clients, length, seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.standard_normal((num_clients, length)).astype(np.float32) for _ in range(num_blocks)]
    dense = np.concatenate([block.T for block in blocks]).astype(np.float64)
    u, values, _ = np.linalg.svd(dense, full_matrices=False)
    gram = filled(blocks).gram(np.arange(num_clients))
    np.testing.assert_allclose(singular_values(gram, len(values)), values[:num_clients], atol=1e-6)
    for count in range(1, min(num_clients, len(values)) + 1):
        projected = dense.T @ u[:, :count]
        features = spectral_features(gram, count)
        # Directions have no sign and, where singular values are equal, no order: inner products have both.
        np.testing.assert_allclose(features @ features.T, projected @ projected.T, atol=1e-5)
        np.testing.assert_allclose(np.abs(features), np.abs(projected), atol=1e-3)


def test_features_of_well_separated_directions_are_the_svds_to_a_millionth():
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((60, 6)))[0]
    right = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    made = (left * np.array([32.0, 16.0, 8.0, 4.0, 2.0, 1.0])) @ right.T
    blocks = [part.T.astype(np.float32) for part in np.split(made, 3)]
    dense = np.concatenate([block.T for block in blocks]).astype(np.float64)
    u, values, _ = np.linalg.svd(dense, full_matrices=False)
    gram = filled(blocks).gram(np.arange(6))
    np.testing.assert_allclose(singular_values(gram, 6), values, rtol=0, atol=1e-6)
    for count in range(1, 7):
        features, projected = spectral_features(gram, count), dense.T @ u[:, :count]
        np.testing.assert_allclose(features @ features.T, projected @ projected.T, rtol=0, atol=1e-6)
        # With nothing between them but signs, the features themselves agree as well.
        np.testing.assert_allclose(np.abs(features), np.abs(projected), rtol=0, atol=1e-6)


def test_a_block_is_the_mean_of_all_that_came_and_counts_are_each_clients_own():
    profile = GradientProfile.empty(2, 2)
    profile.add_clients(3)
    profile.refresh(1, np.array([0, 2]), [np.array([1.0, 2.0]), np.array([5.0, 0.0])])
    profile.refresh(1, np.array([0]), [np.array([3.0, 0.0])])
    profile.refresh(1, np.array([0, 1]), [np.array([5.0, 4.0]), np.array([7.0, 7.0])])
    np.testing.assert_allclose(profile.blocks[1], [[3, 2], [7, 7], [5, 0]])
    np.testing.assert_array_equal(profile.counts, [[0, 3], [0, 1], [0, 1]])
    np.testing.assert_array_equal(profile.blocks[0], np.zeros((3, 2)))
    np.testing.assert_allclose(profile.gram(np.arange(3)), [[13, 35, 15], [35, 98, 35], [15, 35, 25]])
    np.testing.assert_allclose(profile.gram(np.array([2, 0])), [[25, 15], [15, 13]])


def test_without_a_running_mean_the_last_vector_stays():
    profile = GradientProfile.empty(1, 2, running_mean=False)
    profile.add_clients(1)
    for vector in ([1.0, 2.0], [3.0, 4.0]):
        profile.refresh(0, np.array([0]), [np.array(vector)])
    np.testing.assert_array_equal(profile.blocks[0], [[3, 4]])
    np.testing.assert_allclose(profile.gram(np.array([0])), [[25]])


def test_new_clients_leave_what_is_known_alone_and_are_known_by_their_first_vector():
    profile = filled([np.array([[1.0, 2.0]])])
    profile.add_clients(1)
    np.testing.assert_array_equal(profile.known, [True, False])
    profile.refresh(0, np.array([1]), [np.array([2.0, 0.0])])
    np.testing.assert_array_equal(profile.known, [True, True])
    np.testing.assert_allclose(profile.gram(np.arange(2)), [[5, 2], [2, 4]])


def test_clients_are_compared_in_the_blocks_that_both_have():
    has = np.array([[True, True], [True, True], [True, False], [False, True]])
    grams = [np.outer(vector, vector) for vector in ([1.0, 3.0, 2.0, 0.0], [4.0, 2.0, 0.0, 0.0])]
    expected = [[np.inf, 8 / 30, 1 / 5, 16 / 16], [0, np.inf, 1 / 13, 4 / 4], [0, 0, np.inf, np.inf], [np.inf] * 4]
    found = relative_distances(grams, has)
    np.testing.assert_allclose(np.triu(found, 1), np.triu(expected, 1))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), np.inf)
    assert (relative_distances([np.zeros((2, 2))], np.ones((2, 1), dtype=bool)) == [[np.inf, 0], [0, np.inf]]).all()


def test_a_block_that_a_client_lacks_is_the_mean_of_the_three_clients_most_like_it():
    # In block 0 client 3 is nearest to the clients of 2, 3 and 1, whose mean in block 1 is 6.
    known, lacked = [1.0, 2.0, 3.0, 2.0, 10.0, 11.0], [5.0, 6.0, 7.0, 0.0, 50.0, 51.0]
    profile = GradientProfile.empty(2, 1)
    profile.add_clients(6)
    profile.refresh(0, np.arange(6), [np.array([value]) for value in known])
    others = np.array([0, 1, 2, 4, 5])
    profile.refresh(1, others, [np.array([lacked[client]]) for client in others])
    completed = np.column_stack([known, [*lacked[:3], 6.0, *lacked[4:]]])
    np.testing.assert_allclose(profile.gram(np.arange(6)), completed @ completed.T)
    some = np.array([3, 5])
    np.testing.assert_allclose(profile.gram(some), completed[some] @ completed[some].T)
    # With fewer to choose from, the mean of those that there are.
    has = np.array([True, False, True])
    np.testing.assert_allclose(mixing(np.full((3, 3), 0.5), has), [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]])


def test_inner_products_with_imputation_are_those_of_the_dense_matrices():
    rng = np.random.default_rng(0)
    profile = GradientProfile.empty(3, 5)
    profile.add_clients(30)
    for block in range(3):
        rows = np.flatnonzero(rng.random(30) < 0.7)
        profile.refresh(block, rows, list(rng.standard_normal((len(rows), 5))))
    has = profile.counts > 0
    distances = relative_distances(profile.grams, has)
    expected = sum(
        mixing(distances, own) @ gram @ mixing(distances, own).T
        for gram, own in zip(profile.grams, has.T, strict=True)
    )
    some = rng.permutation(30)[:20]
    np.testing.assert_allclose(profile.gram(some), expected[np.ix_(some, some)], atol=1e-12)


def test_a_block_that_a_client_without_a_like_lacks_counts_as_the_mean_of_the_others():
    # Nobody has a block in common with client 2. Block 0: clients 0 and 1 have 2 and 4, client 2 nothing: it counts
    # as 3. Block 1: only client 2, so 5 for all.
    profile = GradientProfile.empty(2, 1)
    profile.add_clients(3)
    profile.refresh(0, np.array([0, 1]), [np.array([2.0]), np.array([4.0])])
    profile.refresh(1, np.array([2]), [np.array([5.0])])
    completed = np.array([[2.0, 5.0], [4.0, 5.0], [3.0, 5.0]])
    np.testing.assert_allclose(profile.gram(np.arange(3)), completed @ completed.T)
    np.testing.assert_allclose(profile.gram(np.array([2])), [[34.0]])


def test_the_inner_products_do_not_depend_on_how_many_columns_are_taken_at_a_time(monkeypatch):
    block = np.random.default_rng(0).standard_normal((5, 23)).astype(np.float32)
    whole = filled([block]).gram(np.arange(5))
    monkeypatch.setattr(profile_module, "CHUNK_ENTRIES", 10)
    np.testing.assert_allclose(filled([block]).gram(np.arange(5)), whole, rtol=1e-12)


def test_vectors_that_diverged_stay_finite():
    profile = GradientProfile.empty(1, 2)
    profile.add_clients(2)
    for vector in ([3e38, -3e38], [-3e38, 3e38]):
        profile.refresh(0, np.array([0, 1]), [np.array(vector), np.array([1.0, 1.0], dtype=np.float32)])
    assert np.isfinite(profile.gram(np.arange(2))).all()
    huge = GradientProfile.empty(1, 1)
    huge.add_clients(1)
    huge.refresh(0, np.array([0]), [np.array([1e300])])
    np.testing.assert_allclose(huge.gram(np.array([0])), [[1e36]])


def groups(num_groups: int, members: int, noise: float, seed: int) -> np.ndarray:
    """Gram matrix of clients whose vectors are a common mean, their group's centre and noise."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((num_groups, 200)) + 10
    vectors = np.repeat(centres, members, axis=0) + noise * rng.standard_normal((num_groups * members, 200))
    return filled([vectors]).gram(np.arange(len(vectors)))


@pytest.mark.parametrize("num_groups", [2, 3, 4, 6])
def test_the_number_of_clusters_is_read_off_the_profile(num_groups):
    for seed in range(3):
        gram = groups(num_groups, 5, 1.0, seed)
        assert estimate_k(gram, 8, np.random.default_rng(0)) == num_groups


def test_small_and_equal_profiles_have_a_defined_number_of_clusters():
    rng = np.random.default_rng(0)
    assert estimate_k(np.array([[4.0]]), 8, rng) == 1
    assert estimate_k(np.zeros((5, 5)), 8, rng) == 1
    assert estimate_k(groups(3, 4, 0.1, 0), 1, rng) == 1
    assert estimate_k(np.diag([1.0, 4.0]), 8, rng) == 2


def test_the_sign_of_a_feature_is_settled():
    features = spectral_features(groups(3, 4, 1.0, 0), 3)
    assert (features[np.argmax(np.abs(features), axis=0), np.arange(3)] > 0).all()
    np.testing.assert_array_equal(spectral_features(np.zeros((3, 3)), 2), np.zeros((3, 2)))


def test_clients_are_not_told_apart_by_when_they_took_part():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 10)
    common, centres = 3 * rng.standard_normal((4, 300)), rng.standard_normal((4, 4, 300))
    profile = GradientProfile.empty(4, 300)
    profile.add_clients(40)
    for step in range(12):
        block, present = step % 4, np.sort(rng.choice(40, 20, replace=False))
        vectors = common[block] + centres[block, truth[present]] + rng.standard_normal((20, 300))
        profile.refresh(block, present, list(vectors))
    features = spectral_features(profile.gram(np.arange(40)), 4)
    assert adjusted_rand_index(truth, cluster(features, 4, "kmeans", rng)) == 1.0


def test_of_many_clients_the_features_come_from_lanczos_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = groups(40, 3, 1.0, 5)
    exact, values = spectral_features(gram, 3), singular_values(gram, 3)
    monkeypatch.setattr(spectral, "EXACT_UP_TO", 10)
    np.testing.assert_allclose(spectral_features(gram, 3), exact, atol=1e-6 * values[0])
    np.testing.assert_array_equal(spectral_features(gram, 3), spectral_features(gram, 3))
    # Where Lanczos' steps lead nowhere all is decomposed.
    np.testing.assert_array_equal(spectral_features(np.zeros((12, 12)), 2), np.zeros((12, 2)))
