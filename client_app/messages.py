"""Replies of the handlers: their records, and how arrays and losses are sent."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecordValues, RecordDict
from numpy.typing import NDArray

from florets.task.wire import kinds
from florets.task.wire.layout import write_array
from florets.task.wire.records import Record, array_record, metric_record, record_dict

Config = Mapping[str, ConfigRecordValues]
"""A message's settings."""
Loss = TypeVar("Loss", float, NDArray[np.float64])
Number = int | float | list[int] | list[float]


def reply(arrays: ArrayRecord | None, metrics: Mapping[str, Number], **others: ArrayRecord) -> RecordDict:
    """Return a reply of arrays, numbers and further array records by name."""
    records: dict[str, Record] = {kinds.METRICS: metric_record(metrics), **others}
    if arrays is not None:
        records[kinds.ARRAYS] = arrays
    return record_dict(records)


def packed(arrays: Mapping[str, NDArray[Any] | Array]) -> ArrayRecord:
    """Return arrays as they are sent; their values are copied."""
    return array_record(
        {name: values if isinstance(values, Array) else write_array(values) for name, values in arrays.items()}
    )


def reported(losses: Loss) -> Loss:
    """Return losses as they may be sent: diverged losses are clipped to a sentinel."""
    if isinstance(losses, float) and 0 < losses < kinds.DIVERGED:
        return float(losses)
    # Written so that a NaN, of which no comparison holds, is the worst as well.
    clipped = np.where(np.less(losses, kinds.DIVERGED), np.maximum(losses, 0.0), kinds.DIVERGED)
    return clipped if isinstance(losses, np.ndarray) else float(clipped)


Quantise = Literal["none", "round", "truncate"]


def quantise(values: NDArray[Any], how: str, digits: int) -> NDArray[Any]:
    """Keep so many decimals of each value; arrays of counters stay as they are.

    Parameters
    ----------
    values
        Any shape.
    how
        ``none``; ``round`` to the nearest, halves to the even digit; ``truncate`` towards zero.
    digits
        Decimals that are kept, at least 0.

    Raises
    ------
    ValueError
        If `how` is another word.

    Source: CFL-GP, App. E.1, Table 7, which speaks of truncation; its figures fit rounding.
    """
    if how not in get_args(Quantise):
        raise ValueError(f"quantise={how!r} is unknown: choose one of {', '.join(get_args(Quantise))}.")
    if how == "none" or values.dtype.kind != "f":
        return values
    scale = 10.0**digits
    # In float64, where scaling a float32 neither overflows nor moves it across a decimal.
    scaled = values.astype(np.float64) * scale
    kept = np.rint(scaled) if how == "round" else np.trunc(scaled)
    return (kept / scale).astype(values.dtype)
