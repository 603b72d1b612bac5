import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from florets.strategies.base.models import orthonormal_rows
from florets.strategies.core.metrics import adjusted_rand_index
from florets.strategies.shared.first_rounds import random_assignment

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


def test_a_random_assignment_is_repeated_by_its_seed_and_uniform_over_models() -> None:
    def drawn(seed: int) -> np.ndarray:
        return random_assignment(30, 3, np.random.default_rng(seed))

    assert np.array_equal(drawn(5), drawn(5))
    counts = np.bincount(np.concatenate([drawn(seed) for seed in range(200)]), minlength=3)
    assert np.abs(counts / 6000 - 1 / 3).max() < 0.03


def test_a_random_assignment_needs_a_model() -> None:
    with pytest.raises(ValueError, match="num_models is 0"):
        random_assignment(3, 0, np.random.default_rng(0))


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


def test_the_adjusted_rand_index_holds_for_more_clients_than_64_bits_of_pairs() -> None:
    true = np.repeat(np.arange(10), 20_000)
    assert adjusted_rand_index(true.tolist(), (9 - true).tolist()) == 1.0
    unrelated = adjusted_rand_index(true.tolist(), (np.arange(200_000) % 7).tolist())
    assert unrelated == pytest.approx(0.0, abs=1e-3)


def test_orthonormal_rows_are_orthogonal_keep_their_lengths_and_their_sides() -> None:
    bank = np.random.default_rng(2).standard_normal((4, 50)) * np.array([[1.0], [10.0], [0.1], [3.0]])
    rows = orthonormal_rows(bank)
    lengths = np.linalg.norm(bank, axis=1)
    assert rows @ rows.T == pytest.approx(np.diag(lengths**2), abs=1e-10)
    assert ((rows * bank).sum(axis=1) > 0).all()
    assert rows[0] == pytest.approx(bank[0])


def test_orthonormal_rows_of_a_case_worked_out_by_hand() -> None:
    rows = orthonormal_rows(np.array([[2.0, 0.0], [3.0, -4.0]]))
    assert rows == pytest.approx(np.array([[2.0, 0.0], [0.0, -5.0]]))


def test_one_model_stays_as_it_is_to_the_bit() -> None:
    bank = np.random.default_rng(3).standard_normal((1, 7))
    assert np.array_equal(orthonormal_rows(bank), bank)


def test_models_that_cannot_be_orthogonal_are_refused() -> None:
    with pytest.raises(ValueError, match="3 models of 2 parameters"):
        orthonormal_rows(np.ones((3, 2)))
    same = np.tile(np.random.default_rng(1).standard_normal(9), (2, 1))
    with pytest.raises(ValueError, match="model 1 is zero or a combination"):
        orthonormal_rows(same)
