"""Whether one model still moves on: the common part of successive updates."""

import numpy as np
import pytest

from florets.strategies.discovery.strategy import common_move, moves_on


def test_the_common_move_is_the_mean_in_units_of_the_clients_own() -> None:
    changes = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 4.0]])
    # Weights of 1/2, 1/4, 1/4: the mean is (3/2, 2), the mean square 9/2 + 16/2.
    np.testing.assert_allclose(common_move(changes, np.array([20.0, 10.0, 10.0])), np.array([1.5, 2.0]) / 12.5**0.5)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_length_of_steps_plays_no_part(scale: float) -> None:
    move = common_move(scale * np.array([[1.0, 1.0], [1.0, 1.0]]), np.ones(2))
    np.testing.assert_allclose(move, np.sqrt([0.5, 0.5]))


def test_clients_that_do_not_move_have_nothing_in_common() -> None:
    still = common_move(np.zeros((2, 3)), np.ones(2))
    np.testing.assert_array_equal(still, np.zeros(3))
    assert not moves_on(still, still)


@pytest.mark.parametrize(
    ("now", "expected"), [([1.0, 0.0], True), ([0.04, 1.0], False), ([0.06, 1.0], True), ([-1.0, 0.0], False)]
)
def test_a_model_moves_on_as_long_as_two_means_point_the_same_way(now: list[float], expected: bool) -> None:
    assert moves_on(np.array([1.0, 0.0]), np.array(now)) == expected
