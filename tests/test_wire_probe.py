"""Compression of what clients send, and the reader of `train.probe`."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from florets.task.wire import Layout, MalformedMessage, kinds
from florets.task.wire.compression import coordinates, quantise
from florets.task.wire.probe import read_probe_update

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
        (["last"], 6.1, r"compression=6.1: one in so many of 6 parameters is none; use at most 6"),
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


def reply(profile: np.ndarray | None = None) -> RecordDict:
    profile = np.array([1.0, 2.0], dtype=np.float32) if profile is None else profile
    return RecordDict(
        {
            kinds.ARRAYS: ArrayRecord(MODEL),
            kinds.METRICS: MetricRecord({kinds.TRAIN_LOSS: 0.5, kinds.NUM_EXAMPLES: 10}),
            kinds.PROFILE: ArrayRecord({kinds.PROFILE: Array(profile)}),
        }
    )


def test_a_whole_reply_is_read() -> None:
    read = read_probe_update(reply(), LAYOUT, 3, 2)
    assert (read.model, read.num_examples, read.train_loss) == (3, 10, 0.5)
    assert (read.profile.tolist(), read.profile.dtype) == ([1.0, 2.0], np.float32)


def without(content: RecordDict, record: str) -> RecordDict:
    del content[record]
    return content


def renamed(content: RecordDict) -> RecordDict:
    content[kinds.PROFILE] = ArrayRecord({"other": content.array_records[kinds.PROFILE][kinds.PROFILE]})
    return content


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: reply(np.zeros(3, dtype=np.float32)), r"float32\[3\]"),
        (lambda: reply(np.zeros(2)), "float64"),
        (lambda: reply(np.array([1, np.nan], dtype=np.float32)), "NaN"),
        (lambda: without(reply(), kinds.PROFILE), "must hold one array 'profile'"),
        (lambda: without(reply(), kinds.ARRAYS), "holds the records"),
        (lambda: renamed(reply()), "must hold one array 'profile'"),
        (lambda: RecordDict({**reply(), "more": MetricRecord()}), "holds the records"),
        (lambda: RecordDict({**reply(), kinds.PROFILE: MetricRecord()}), "must hold one array 'profile'"),
    ],
)
def test_a_reply_that_breaks_a_rule_is_refused(broken: Callable[[], RecordDict], message: str) -> None:
    with pytest.raises(MalformedMessage, match=message):
        read_probe_update(broken(), LAYOUT, 0, 2)
