"""The error of models under the best pairing: by hand, and against all permutations."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.strategies.core.metrics import model_error


def test_the_largest_distance_of_the_best_pairing_by_hand():
    """Pairing each with its nearest would use the model at 1 twice; the sum's best pairing is not the largest's."""
    true_models = np.array([[0.0], [2.0]])
    assert model_error(np.array([[1.0], [4.0]]), true_models) == 2
    assert model_error(np.array([[2.0], [0.5]]), true_models) == 0.5
    assert model_error(np.array([[2.0], [9.0], [0.25]]), true_models) == 0.25


def test_one_global_model_is_judged_by_the_true_model_that_it_is_farthest_from():
    assert model_error(np.array([[0.5, 0.0]]), np.array([[0.0, 0.0], [2.0, 0.0]])) == 1.5
    assert model_error(np.array([[0.0], [5.0]]), np.array([[1.0], [2.0], [5.0]])) == 2


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


def test_many_models_take_no_time():
    rng = np.random.default_rng(0)
    true_models = rng.standard_normal((60, 5))
    found = true_models[rng.permutation(60)] + 1e-3
    assert model_error(found, true_models) == pytest.approx(1e-3 * np.sqrt(5))


def test_a_model_that_diverged_is_nobodys():
    true_models = np.zeros((2, 1))
    bank = np.array([[1.0], [np.nan], [2.0]])
    assert model_error(bank, true_models) == 2
    assert model_error(bank[:2], true_models) == np.inf
    assert model_error(bank[1:2], true_models) == np.inf


@pytest.mark.parametrize("shape", [(0, 2), (2, 3)])
def test_models_that_cannot_be_compared_are_refused(shape):
    with pytest.raises(ValueError, match="cannot be compared"):
        model_error(np.zeros(shape), np.zeros((2, 2)))
