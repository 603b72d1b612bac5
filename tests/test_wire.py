"""The wire format: models and replies survive the trip, and nothing malformed gets in."""

import io
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.strategies.shared.fold_plan import FoldPlan
from florets.task.wire import Layout, MalformedMessage, bank, payload_bytes, records
from florets.task.wire.flower import filled
from florets.task.wire.folds import RowForm

MODEL = {
    "weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "count": Array(np.array(7, dtype=np.int64)),
    "empty": Array(np.zeros((0, 3), dtype=np.float32)),
}
LAYOUT = Layout.of(MODEL)


def test_a_model_becomes_a_flat_vector_and_comes_back_in_its_own_dtypes() -> None:
    vector = LAYOUT.flatten(MODEL)
    np.testing.assert_array_equal(vector, [0, 1, 2, 3, 4, 5, 7])
    np.testing.assert_array_equal(LAYOUT.integers, [False] * 6 + [True])
    back = LAYOUT.arrays(vector)
    assert {name: (array.dtype, array.shape) for name, array in back.items()} == {
        "weight": ("float32", (2, 3)),
        "count": ("int64", ()),
        "empty": ("float32", (0, 3)),
    }
    np.testing.assert_array_equal(back["weight"].numpy(), MODEL["weight"].numpy())


@pytest.mark.parametrize("value", [2.0, -1e-30, 0.0, -1e30])
def test_finite_values_of_a_model_are_taken(value: float) -> None:
    # Without the model's counter. The square of 1e30 is no float32.
    packed = Layout.of({"weight": MODEL["weight"]}).checked({"weight": Array(np.full((2, 3), value, np.float32))})
    assert packed.largest == pytest.approx(abs(value))


def test_k_models_travel_in_one_record_and_shared_layers_once() -> None:
    values = np.array([[0, 1, 2, 3, 4, 5, 7], [9, 9, 9, 9, 9, 9, 8]], dtype=np.float64)
    record = bank.pack(values, LAYOUT)
    assert sorted(record) == ["0/count", "0/empty", "0/weight", "1/count", "1/empty", "1/weight"]
    np.testing.assert_array_equal(bank.unpack(record)[0], values)

    shared = bank.pack(values, LAYOUT, LAYOUT.mask(["weight"]))
    assert sorted(shared) == ["0/count", "0/empty", "1/count", "1/empty", "weight"]
    assert bank.num_models(shared) == 2
    np.testing.assert_array_equal(bank.unpack(shared)[0][1], [0, 1, 2, 3, 4, 5, 8])


@pytest.mark.parametrize("number", ["1", "999999999", "2"])
def test_a_bank_costs_what_was_sent_not_what_its_largest_number_claims(number):
    record = ArrayRecord({f"{index}/weight": Array(np.ones(2)) for index in ("0", number)})
    if number == "1":
        assert bank.num_models(record) == 2
        return
    with pytest.raises(MalformedMessage, match=number):
        bank.num_models(record)


def test_a_layer_prefix_ends_at_a_dot() -> None:
    layout = Layout.of({"fc.weight": MODEL["weight"], "fc2.weight": MODEL["weight"]})
    np.testing.assert_array_equal(layout.mask(["fc"]), [True] * 6 + [False] * 6)


def test_fortran_order_is_read_right() -> None:
    turned = Array(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))
    np.testing.assert_array_equal(LAYOUT.flatten({**MODEL, "weight": turned}), LAYOUT.flatten(MODEL))


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_payload_is_counted_in_bytes() -> None:
    content = RecordDict(
        {
            "a": ArrayRecord({"x": Array(np.zeros(4, dtype=np.float32))}),
            "m": MetricRecord({"one": 1, "three": [1.0, 2.0, 3.0]}),
            "c": ConfigRecord({"text": "abcd", "empty": ""}),
        }
    )
    assert payload_bytes(content) == len(npy(np.zeros(4, dtype=np.float32))) + 8 + 24 + 4


@pytest.mark.parametrize("shape", [(), (0,), (2, 1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_arrays_are_written_and_viewed_as_flower_does(shape: tuple[int, ...], dtype: str) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    array = records.write_array(values)
    assert array == Array(values)
    view = records.view_array(array)
    assert (view.dtype, view.shape, view.tobytes()) == (values.dtype, values.shape, values.tobytes())


VALUES: dict[str, Any] = {"a": 1, "b": 2.5, "c": [1, 2], "d": [0.5], "e": []}
CONFIG: dict[str, Any] = {**VALUES, "f": "text", "g": b"bytes", "h": True, "i": ["x", "y"]}


def test_filled_records_are_those_that_flower_makes() -> None:
    metrics, config = filled(MetricRecord(), VALUES), filled(ConfigRecord(), CONFIG)
    assert (metrics, config) == (MetricRecord(VALUES), ConfigRecord(CONFIG))
    assert (metrics.object_id, config.object_id) == (MetricRecord(VALUES).object_id, ConfigRecord(CONFIG).object_id)
    assert filled(ConfigRecord({"a": 7, "z": 1}), CONFIG) == ConfigRecord({**CONFIG, "z": 1})
    assert dict(config.items()) == CONFIG
    # NumPy's float is Python's as well.
    assert filled(MetricRecord(), {"a": np.float64(1.5)})["a"] == 1.5
    arrays = {"a": records.write_array(np.ones(2, np.float32))}
    content = {"arrays": filled(ArrayRecord(), arrays), "config": config}
    assert content["arrays"] == ArrayRecord(arrays)
    assert filled(RecordDict(), content).object_id == RecordDict(content).object_id
    wrong: list[tuple[Any, Any]] = [(MetricRecord(), "text"), (ArrayRecord(), 1.0), (RecordDict(), arrays["a"])]
    for record, value in [*wrong, (ConfigRecord(), [1, "a"])]:
        with pytest.raises(TypeError):
            filled(record, {"a": value})


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_a_full_row_is_the_change_at_unit_length() -> None:
    form = RowForm.of(None, 2, 2)
    sent = form.pack(np.array([[3.0, 4.0], [0.0, -2.0]], dtype=np.float32), rng())
    assert sent.dtype == np.float32
    np.testing.assert_array_equal(sent, np.array([[0.6, 0.8], [0.0, -1.0]], dtype=np.float32))
    np.testing.assert_array_equal(form.unpack(sent), sent)


def test_a_projection_keeps_cosines_and_is_the_same_for_all_clients() -> None:
    form = RowForm.of(None, 20_000, 4)
    assert form.width == 1024
    one, noise = np.random.default_rng(1).standard_normal((2, 20_000)).astype(np.float32)
    rows = np.stack([one, one + noise, -one])
    sent = form.pack(rows, rng())
    assert sent.dtype == np.float16
    cosines = (found := form.unpack(sent)) @ found.T
    # A cosine of 1 / sqrt(2), to about 1 / sqrt(1024).
    assert cosines[0, 1] == pytest.approx(2**-0.5, abs=0.08)
    assert cosines[0, 2] == pytest.approx(-1, abs=1e-3)
    np.testing.assert_array_equal(form.pack(rows[1:2], rng()), sent[1:2])


@pytest.mark.parametrize(("count", "size"), [(900, 14), (56, 14), (55, 13), (32, 8), (31, 0), (1, 0)])
def test_clients_with_few_samples_have_smaller_folds_or_none(count: int, size: int) -> None:
    assert FoldPlan(4, 14, 3).size_of(count) == size


PLANS = [
    ([288] * 20, FoldPlan(4, 72, 2)),
    ([500] * 20, FoldPlan(4, 100, 2)),
    ([100] * 20, FoldPlan(4, 25, 2)),
    ([30] * 60, FoldPlan(3, 10, 6)),
    ([90] * 5, FoldPlan(8, 11, 4)),
    ([39] * 5, FoldPlan(3, 13, 5)),
    # Half of the clients have enough: the smallest of these decides.
    ([10, 20, 48, 500], FoldPlan(8, 6, 4)),
    # Smaller clients than those near the median have folds of up to two smaller sizes, or none.
    ([20, 60, 110, 120, 200] + [400] * 7, FoldPlan(4, 100, 2, smaller=(50, 27))),
    # Nobody has enough.
    ([4] * 10, FoldPlan(3, 1, 10)),
]


@pytest.mark.parametrize(("counts", "plan"), PLANS)
def test_all_clients_have_folds_of_one_size_and_train_as_many_steps(counts: list[int], plan: FoldPlan) -> None:
    assert FoldPlan.of(counts, tests=bool(plan.smaller)) == plan
    assert FoldPlan.of(counts[::-1], tests=bool(plan.smaller)) == plan
