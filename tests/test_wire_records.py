"""Records that are filled at once are Flower's own, and refuse what Flower refuses."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.task.wire.records import array, array_record, config_record, entries, filled, metric_record, record_dict

VALUES: dict[str, Any] = {"a": 1, "b": 2.5, "c": [1, 2], "d": [0.5], "e": []}
CONFIG: dict[str, Any] = {**VALUES, "f": "text", "g": b"bytes", "h": True, "i": ["x", "y"]}


def test_filled_records_are_those_that_flower_makes() -> None:
    assert metric_record(VALUES) == MetricRecord(VALUES)
    assert config_record(CONFIG) == ConfigRecord(CONFIG)
    assert filled(ConfigRecord({"a": 7, "z": 1}), CONFIG) == ConfigRecord({**CONFIG, "z": 1})
    assert metric_record(VALUES).object_id == MetricRecord(VALUES).object_id
    assert config_record(CONFIG).object_id == ConfigRecord(CONFIG).object_id
    assert dict(entries(config_record(CONFIG))) == CONFIG
    # NumPy's float is Python's as well.
    assert metric_record({"a": np.float64(1.5)})["a"] == 1.5


@pytest.mark.parametrize(
    "value", [None, {}, (1,), [1, 2.0], [None], np.float32(1), np.int64(1)], ids=lambda value: type(value).__name__
)
def test_what_flower_refuses_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        metric_record({"a": 1, "b": value})
    with pytest.raises(TypeError):
        config_record({"a": 1, "b": value})


def test_metrics_are_numbers_and_keys_texts() -> None:
    for value in ("text", b"bytes", ["text"]):
        with pytest.raises(TypeError):
            metric_record({"a": value})
    with pytest.raises(TypeError):
        config_record({1: 2})  # type: ignore[dict-item]  # that is the point
    with pytest.raises(TypeError):
        record_dict({"a": 1})  # type: ignore[dict-item]


def test_contents_and_arrays_are_those_that_flower_makes() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    theirs = Array(values)
    ours = array("float32", (2, 3), theirs.data)
    assert ours == theirs
    assert ours.object_id == theirs.object_id
    assert array_record({"w": ours}) == ArrayRecord({"w": theirs})
    records = {"arrays": array_record({"w": ours}), "metrics": metric_record(VALUES), "config": config_record(CONFIG)}
    assert record_dict(records) == RecordDict(dict(records))
    assert record_dict(records).object_id == RecordDict(dict(records)).object_id
