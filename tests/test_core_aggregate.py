import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florets.strategies.core.aggregate import WEIGHTINGS, apply_step, average_gradients, average_models

BANK = np.array([[10.0, 0.0], [20.0, 0.0], [30.0, 7.0]])
UPDATES = np.array([[1.0, 4.0], [3.0, 8.0], [5.0, 2.0]])
ASSIGNMENT = np.array([0, 0, 1])
WEIGHTS = np.array([1.0, 3.0, 4.0])
NO_INTEGERS = np.array([False, False])


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("examples", [[2.5, 7.0], [5.0, 2.0], [30.0, 7.0]]),
        ("uniform", [[2.0, 6.0], [5.0, 2.0], [30.0, 7.0]]),
        # N = 8: model 0 keeps 4/8 of itself, model 1 too.
        ("all_participants", [[6.25, 3.5], [12.5, 1.0], [30.0, 7.0]]),
    ],
)
def test_models_are_averaged_under_each_weighting(weighting: str, expected: list[list[float]]) -> None:
    result = average_models(BANK, UPDATES, ASSIGNMENT, WEIGHTS, weighting, NO_INTEGERS)
    assert result.tolist() == expected
    assert BANK[0].tolist() == [10.0, 0.0], "the argument must not be changed"


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_integer_entries_take_the_largest_among_the_members(weighting: str) -> None:
    result = average_models(BANK, UPDATES, ASSIGNMENT, WEIGHTS, weighting, np.array([False, True]))
    assert result[:, 1].tolist() == [8.0, 2.0, 7.0]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_models_without_members_keep_their_bits(weighting: str) -> None:
    odd = np.array([[0.1, -0.0, np.nan], [1 / 3, np.inf, 5e-324]])
    nobody = average_models(odd, np.zeros((0, 3)), np.zeros(0, dtype=int), np.zeros(0), weighting, np.zeros(3, bool))
    assert nobody.tobytes() == odd.tobytes()
    one = average_models(odd, np.ones((1, 3)), np.array([0]), np.ones(1), weighting, np.zeros(3, bool))
    assert one[1].tobytes() == odd[1].tobytes()


def test_all_participants_in_one_group_give_equal_bits_by_every_path() -> None:
    rng = np.random.default_rng(0)
    bank, updates = rng.standard_normal((1, 40)), rng.standard_normal((9, 40))
    weights = rng.integers(1, 500, size=9).astype(np.float64)
    nobody_else, integers = np.zeros(9, dtype=int), np.zeros(40, dtype=bool)
    alone = average_models(bank, updates, nobody_else, weights, "examples", integers)
    kept = average_models(bank, updates, nobody_else, weights, "all_participants", integers)
    among_three = average_models(np.tile(bank, (3, 1)), updates, nobody_else + 1, weights, "examples", integers)
    assert alone.tobytes() == kept.tobytes() == among_three[1].tobytes()
    assert alone[0] == pytest.approx(np.average(updates, axis=0, weights=weights))


@given(st.integers(0, 2**31), st.sampled_from(WEIGHTINGS))
def test_averages_do_not_depend_on_the_order_of_clients_or_the_numbers_of_models(seed: int, weighting: str) -> None:
    rng = np.random.default_rng(seed)
    bank, updates = rng.standard_normal((3, 4)), rng.standard_normal((6, 4))
    assignment, weights = rng.integers(3, size=6), rng.integers(1, 9, size=6).astype(np.float64)
    integers = np.array([False, False, True, False])
    expected = average_models(bank, updates, assignment, weights, weighting, integers)
    order, names = rng.permutation(6), rng.permutation(3)
    renamed = np.empty_like(bank)
    renamed[names] = bank
    result = average_models(renamed, updates[order], names[assignment][order], weights[order], weighting, integers)
    assert result[names] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("examples", [[2.5, 7.0], [5.0, 2.0], [0.0, 0.0]]),
        ("uniform", [[2.0, 6.0], [5.0, 2.0], [0.0, 0.0]]),
        ("all_participants", [[4 / 3, 4.0], [5 / 3, 2 / 3], [0.0, 0.0]]),
    ],
)
def test_gradients_are_averaged_under_each_weighting(weighting: str, expected: list[list[float]]) -> None:
    gradient, members = average_gradients(UPDATES, ASSIGNMENT, WEIGHTS, weighting, (3, UPDATES.shape[1]))
    assert gradient == pytest.approx(np.array(expected))
    assert members.tolist() == [True, True, False]


def test_an_adam_step_is_the_first_step_of_adam() -> None:
    start, slope = np.array([1.0, -2.0, 3.0, 0.5]), np.array([0.3, -1e-9, 0.0, 50.0])
    # Corrected for their start at zero, both moments are the gradient's: it is divided by its own absolute value.
    moment, second = (1 - 0.9) * slope / (1 - 0.9), (1 - 0.999) * slope**2 / (1 - 0.999)
    stepped = apply_step(start[None], slope[None], np.array([True]), 0.01, "adam")
    assert stepped[0] == pytest.approx(start - 0.01 * moment / (np.sqrt(second) + 1e-8), abs=1e-14)
    assert stepped[0] == pytest.approx([0.99, -2 + 0.01 / 11, 3.0, 0.49], abs=1e-9)
