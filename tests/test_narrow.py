"""`wire=float16|int8`: values by hand, what is refused, and runs that are as good for fewer bytes."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.task.wire import MalformedMessage, kinds
from florets.task.wire.narrow import Narrowing, is_narrow, narrow, narrow_reply, whole, widen_reply, widened
from florets.task.wire.records import write_array
from tests.grid_runs import run_on

VALUES = np.array([[1.0, -0.5], [0.0, 0.3]], dtype=np.float32)
STEPS = np.array([127, -64, 0, 38], dtype=np.int8)
"""Of 127 each: 63.5 is rounded to the even step, and 0.3 is 38.1."""
INT8 = {kinds.WIRE: "int8"}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def content(**arrays: Array) -> RecordDict:
    return RecordDict({kinds.ARRAYS: ArrayRecord(arrays), kinds.METRICS: MetricRecord({kinds.CHOSEN_MODEL: 1})})


def test_int8_is_a_scale_and_a_byte_a_value() -> None:
    sent = narrow(VALUES, "int8")
    scale = np.float32(1) / np.float32(127)
    assert sent.data == scale.tobytes() + STEPS.tobytes()
    np.testing.assert_array_equal(widened(sent), (STEPS * scale).reshape(2, 2))
    # Nothing is lost on the way to another process.
    (again,) = pickle.loads(pickle.dumps(ArrayRecord({"w": sent}))).values()
    assert (again.stype, again.data, again.shape) == (sent.stype, sent.data, (2, 2))


def test_float16_is_two_bytes_a_value() -> None:
    sent = narrow(VALUES, "float16")
    assert sent.data == VALUES.astype("<f2").tobytes()
    np.testing.assert_array_equal(widened(sent), VALUES.astype(np.float16))


def test_rounding_at_random_keeps_the_expectation_and_errs_by_less_than_a_step() -> None:
    values = np.linspace(-1, 1, 41, dtype=np.float32)
    draws = rng()
    read = np.stack([widened(narrow(values, "int8", draws)) for _ in range(2000)])
    assert np.abs(read - values).max() <= 1 / 127 + 1e-6
    # The mean of 2000 draws has a standard error of at most half a step over the square root of that.
    assert np.abs(read.mean(axis=0) - values).max() < 5 * 0.5 / 127 / math.sqrt(2000)


@pytest.mark.parametrize("values", [np.zeros((0, 3)), np.zeros(()), np.zeros(3), np.full(2, 1e-45)])
def test_nothing_zero_and_the_smallest_values_are_read_back(values: np.ndarray) -> None:
    read = widened(narrow(values.astype(np.float32), "int8", rng()))
    assert read.shape == values.shape
    assert np.isfinite(read).all()


def test_counters_and_what_diverged_are_sent_as_they_are() -> None:
    assert not is_narrow(narrow(np.arange(3), "int8"))
    for wire, value in (("int8", np.nan), ("float16", np.inf), ("float16", 65505)):
        assert not is_narrow(narrow(np.float32([1, value]), wire))
    assert widened(narrow(np.float32([-65504]), "float16")) == [-65504]
    with pytest.raises(ValueError, match="wire='int4' is unknown"):
        narrow(VALUES, "int4")


def test_the_servers_own_model_gets_the_change_from_what_the_client_was_sent() -> None:
    server = ArrayRecord({"w": write_array(VALUES), "seen": write_array(np.array([5]))})
    sent = Narrowing("int8", ["w"]).record(server)
    came = whole(sent)
    assert whole(came) is came
    trained = came["w"].numpy() + np.float32(0.25)
    reply = content(w=write_array(trained), seen=write_array(np.array([6])))
    up = narrow_reply(reply, kinds.TRAIN, INT8, {kinds.ARRAYS: came}, rng())
    found = widen_reply(up, kinds.TRAIN, INT8, {kinds.ARRAYS: server}).array_records[kinds.ARRAYS]
    # A change that is equal everywhere is its scale, 127 times; what the way down lost is not in it.
    np.testing.assert_allclose(found["w"].numpy(), VALUES + np.float32(0.25), atol=1e-6)
    assert found["seen"].numpy() == [6]


def test_a_change_counts_from_the_chosen_model_and_a_gradient_from_nothing() -> None:
    models = ArrayRecord({"0/w": write_array(VALUES), "1/w": write_array(-VALUES)})
    for kind, config, start in (
        (kinds.TRAIN_SELECT, INT8, -VALUES),
        (kinds.TRAIN, {**INT8, kinds.REPLY: kinds.REPLY_GRADIENT}, 0 * VALUES),
    ):
        up = narrow_reply(content(w=write_array(start + 1)), kind, config, {kinds.ARRAYS: models}, rng())
        assert is_narrow(up.array_records[kinds.ARRAYS]["w"])
        found = widen_reply(up, kind, config, {kinds.ARRAYS: models})
        np.testing.assert_allclose(found.array_records[kinds.ARRAYS]["w"].numpy(), start + 1, atol=1e-6)


def test_what_was_not_sent_stays_whole_and_no_change_of_it_is_taken() -> None:
    other, config = content(other=write_array(VALUES)), ConfigRecord(INT8)
    sent = {kinds.ARRAYS: ArrayRecord({"other": write_array(VALUES[0])})}
    up = narrow_reply(other, kinds.TRAIN, config, sent, rng())
    assert not is_narrow(up.array_records[kinds.ARRAYS]["other"])
    for start in (sent, {}):
        with pytest.raises(MalformedMessage, match="the change of none that was sent"):
            widen_reply(content(other=narrow(VALUES, "int8")), kinds.TRAIN, config, start)


SMALL = ("num_clients=8", "k=2", "task.num_clusters=2", "num_rounds=4", "eval_every=4", "quiet=true")


@pytest.mark.parametrize("strategy", ["ifca", "ditto"])
def test_a_run_is_as_good_for_a_quarter_of_the_bytes(strategy: str) -> None:
    found: dict[str, Any] = {}
    for wire in ("float32", "int8"):
        config = compose([*SMALL, f"strategy={strategy}", f"wire={wire}"])
        run, reports = run_on(LocalGrid(app, 8), config, build_task(config))
        accuracy = float(np.mean([one.accuracy for one in run.evaluations.values() if one.accuracy is not None]))
        found[wire] = accuracy, sum(one.bytes_up for one in reports), dict(run.assignment)
    accuracy, size, groups = found["float32"]
    assert found["int8"][0] == pytest.approx(accuracy, abs=0.03)
    assert found["int8"][1] < 0.26 * size
    assert found["int8"][2] == groups
