"""Compression of what clients send, and the reader of `train.probe`."""

import numpy as np
import pytest
from flwr.app import Array

from florets.client_app.training import quantise
from florets.strategies.cfl_gp.messages import coordinates
from florets.task.wire import Layout

MODEL = {
    "first.weight": Array(np.zeros((3, 2), dtype=np.float32)),
    "steps": Array(np.array(0, dtype=np.int64)),
    "last.weight": Array(np.zeros((2, 3), dtype=np.float32)),
}
LAYOUT = Layout.of(MODEL)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_all_floating_entries_or_those_of_chosen_layers_make_the_profile() -> None:
    assert coordinates(LAYOUT, [], 1, rng()).tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    assert coordinates(LAYOUT, ["last"], 1, rng()).tolist() == [7, 8, 9, 10, 11, 12]


def test_compression_draws_one_entry_in_so_many() -> None:
    drawn = coordinates(LAYOUT, [], 3, rng())
    assert len(drawn) == 4
    assert set(drawn.tolist()) <= {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12}
    assert drawn.tolist() == sorted(set(drawn.tolist())) == coordinates(LAYOUT, [], 3, rng()).tolist()
    assert any(coordinates(LAYOUT, [], 3, rng(seed)).tolist() != drawn.tolist() for seed in range(1, 5))
    assert len(coordinates(LAYOUT, ["last"], 6, rng())) == 1


@pytest.mark.parametrize(
    ("layers", "ratio", "message"),
    [
        ([], 0.5, "compression=0.5"),
        (["last"], 6.1, r"compression=6.1: one in that many of 6 parameters is none; use at most 6"),
        (["conv"], 1, "no layer of the model is called 'conv'"),
        (["steps"], 1, "hold no"),
    ],
)
def test_coordinates_that_cannot_be_had_are_refused(layers: list[str], ratio: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        coordinates(LAYOUT, layers, ratio, rng())


def test_decimals_are_rounded_or_cut_off() -> None:
    values = np.array([0.126, -0.126, 0.004, 1.0, -7.999], dtype=np.float32)
    np.testing.assert_array_equal(quantise(values, "round", 2), np.float32([0.13, -0.13, 0.0, 1.0, -8.0]))
    np.testing.assert_array_equal(quantise(values, "truncate", 2), np.float32([0.12, -0.12, 0.0, 1.0, -7.99]))
    np.testing.assert_array_equal(quantise(values, "round", 0), np.float32([0, -0.0, 0, 1, -8]))
    assert quantise(values, "none", 2) is values
    counters = np.array([3], dtype=np.int64)
    assert quantise(counters, "round", 0) is counters
    assert quantise(np.float32([3e38]), "round", 4) == np.float32(3e38)
    with pytest.raises(ValueError, match="quantise='up'"):
        quantise(values, "up", 2)
