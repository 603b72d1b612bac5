"""A message's settings and arrays, read with their types checked, and the records of replies."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, ConfigRecordValues, RecordDict
from numpy.typing import NDArray

from florets.task.training.loop import TrainSettings
from florets.task.training.modules import Precision
from florets.task.training.objective import PLAIN, Objective, Proximal
from florets.task.wire import kinds
from florets.task.wire.layout import write_array
from florets.task.wire.records import Record, array_record, entries, metric_record, record_dict
from florets.task.wire.schedule import Schedule

Config = Mapping[str, ConfigRecordValues]
"""A message's settings."""


def config_of(content: RecordDict) -> Config:
    """Return the settings of a message.

    Raises
    ------
    ValueError
        If it has none.
    """
    config = entries(content).get(kinds.CONFIG)
    if not isinstance(config, ConfigRecord):
        raise ValueError(f"the message has no {kinds.CONFIG!r}")
    return entries(config)


def arrays_of(content: RecordDict, record: str = kinds.ARRAYS) -> ArrayRecord:
    """Return the arrays of a message.

    Raises
    ------
    ValueError
        If it has none under this name.
    """
    arrays = entries(content).get(record)
    if not isinstance(arrays, ArrayRecord):
        raise ValueError(f"the message has no {record!r}")
    return arrays


def number(config: Config, key: str, default: float | None = None) -> float:
    """Return a number among the settings.

    Raises
    ------
    ValueError
        If it is no number, or missing without a default.
    """
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the message's config has {key}={value!r}, not a number")
    return value


def names(config: Config, key: str) -> list[str]:
    """Return a list of names among the settings; empty where there is none.

    Raises
    ------
    ValueError
        If it is something else.
    """
    value = config.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"the message's config has {key}={value!r}, not a list of names")
    return [str(name) for name in value]


def train_settings(config: Config) -> TrainSettings:
    """Return the settings of local training in this round."""
    told = tuple(map(config.get, _TRAINING))
    try:
        return _settings(*told)  # type: ignore[arg-type]  # what cannot be looked up is caught
    except TypeError:
        # A list, which cannot be looked up: what is wrong with it is said of its key.
        return _settings.__wrapped__(*told)


_TRAINING = (
    kinds.SERVER_ROUND,
    kinds.SCHEDULE,
    kinds.SCHEDULE_ROUNDS,
    kinds.SCHEDULE_FACTOR,
    kinds.LEARNING_RATE,
    kinds.LOCAL_EPOCHS,
    kinds.BATCH_SIZE,
    kinds.OPTIMIZER,
    kinds.MOMENTUM,
    kinds.WEIGHT_DECAY,
    kinds.LOCAL_STEPS,
    kinds.OPTIMIZER_OPTIONS,
    kinds.CLIP_NORM,
    kinds.PRECISION,
)


# The clients of a round are told the same; 1, 1.0 and True are different things to be told.
@lru_cache(maxsize=8, typed=True)
def _settings(*told: ConfigRecordValues | None) -> TrainSettings:
    """Return the settings that are told under `_TRAINING`; None: nothing is."""
    config = {key: value for key, value in zip(_TRAINING, told, strict=True) if value is not None}
    factor = Schedule.of(config).at(int(number(config, kinds.SERVER_ROUND, 0)))
    return TrainSettings(
        number(config, kinds.LEARNING_RATE) * factor,
        number(config, kinds.LOCAL_EPOCHS),
        int(number(config, kinds.BATCH_SIZE)),
        str(config.get(kinds.OPTIMIZER, "adam")),
        number(config, kinds.MOMENTUM, 0.0),
        number(config, kinds.WEIGHT_DECAY, 0.0),
        int(number(config, kinds.LOCAL_STEPS, 0)),
        _optimizer_options(config),
        clip_norm(config),
        precision(config),
    )


def _optimizer_options(config: Config) -> dict[str, Any]:
    text = config.get(kinds.OPTIMIZER_OPTIONS, "{}")
    try:
        options = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ValueError(f"the message's config has {kinds.OPTIMIZER_OPTIONS!r} that are no JSON object")
    return options


def clip_norm(config: Config) -> float | None:
    """Return the norm that gradients are clipped to; None: they are not.

    Raises
    ------
    ValueError
        If it is no number.
    """
    return None if config.get(kinds.CLIP_NORM) is None else number(config, kinds.CLIP_NORM)


def precision(config: Config) -> Precision:
    """Return the precision of the passes of training.

    Raises
    ------
    ValueError
        If it is unknown.
    """
    found = config.get(kinds.PRECISION, "float32")
    if found not in get_args(Precision):
        raise ValueError(f"the message's config has {kinds.PRECISION}={found!r}, not float32 or bf16")
    return cast(Precision, found)


def objective_of(config: Config) -> Objective:
    """Return what the message asks to minimise: the loss, beside it a proximal term, without the frozen layers.

    Raises
    ------
    ValueError
        If the proximal term's factor is negative.
    """
    if kinds.PROXIMAL_MU not in config and kinds.FROZEN not in config:
        return PLAIN
    mu = number(config, kinds.PROXIMAL_MU, 0.0)
    return Objective(terms=(Proximal(mu),) if mu else (), frozen=tuple(names(config, kinds.FROZEN)))


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
