"""Models in 16 or 8 bits on the wire (`wire=float16|int8`): as they are on the way down, as changes on the way up.

Only float32 arrays of a model are narrowed, where their values fit. An array that is narrow keeps its dtype and shape
and has a serialisation type of its own: 2 bytes a value, or a float32 scale and a byte a value. Counters, running
statistics and whatever has no counterpart in the message are sent as they are.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, RecordDict

from florets.task.wire import bank, kinds
from florets.task.wire.flower import filled
from florets.task.wire.records import MalformedMessage, NotFinite, array, view_array, write_array

MODEL_RECORDS = (kinds.ARRAYS, kinds.COMMON, kinds.GLOBAL, kinds.OWN)
"""Records of a message, and of its reply, that hold models."""
_FLOAT32, _HALF, _SCALE, _BYTES = "float32", np.dtype("<f2"), np.dtype("<f4"), np.dtype("i1")
_STEPS = 127
_MOST = {"float16": np.finfo(_HALF).max, "int8": np.finfo(np.float32).max}
_SERIALISED = {"float16": "florets.float16", "int8": "florets.int8"}
_NOTHING = ArrayRecord()
Values = npt.NDArray[np.float32]


def narrow(values: npt.NDArray[Any], wire: str, rng: np.random.Generator | None = None) -> Array:
    """Serialise float32 values in 16 or 8 bits; others, and an array with a value that does not fit, as they are.

    None fits that is not finite, and no absolute value above 65,504 fits into float16.
    For int8 the largest absolute value is 127 steps. Values are rounded to the nearest step or, with `rng`, up or
    down at random so that their expectation is kept.

    Source: Alistarh et al. 2017 (QSGD), the unbiased rounding, with the maximum for the norm.
    """
    if wire not in _SERIALISED:
        raise ValueError(f"wire={wire!r} is unknown: choose float32, {' or '.join(_SERIALISED)}")
    largest = np.abs(values).max(initial=0.0)
    # NaN is not at most anything.
    if values.dtype != np.float32 or not largest <= _MOST[wire]:
        return write_array(values)
    if wire == "float16":
        data = values.astype(_HALF).tobytes()
    else:
        scale = np.float32(largest / np.float32(_STEPS))
        steps = values / scale if scale > 0 else np.zeros_like(values)
        steps = np.rint(steps) if rng is None else np.floor(steps + rng.random(values.shape, dtype=np.float32))
        # Of the largest value the quotient may be a rounding error above 127.
        data = scale.astype(_SCALE).tobytes() + steps.clip(-_STEPS, _STEPS).astype(_BYTES).tobytes()
    return array(_FLOAT32, values.shape, data, _SERIALISED[wire])


def is_narrow(array: Array) -> bool:
    """Return whether an array is serialised in 16 or 8 bits."""
    return array.stype in _SERIALISED.values()


def widened(array: Array) -> Values:
    """Return the values of a narrow array that may come from anywhere; MalformedMessage if it is not one.

    No value is read before the length fits the shape.
    """
    shape, data = tuple(array.shape), array.data
    bits = next((wire for wire, name in _SERIALISED.items() if name == array.stype), None)
    if array.dtype != _FLOAT32 or bits is None:
        raise MalformedMessage(f"an array is {array.dtype} ({array.stype}), not float32 in 16 or 8 bits")
    size = int(np.prod(shape, dtype=object))
    wanted = size * _HALF.itemsize if bits == "float16" else _SCALE.itemsize + size
    if min(shape, default=0) < 0 or len(data) != wanted:
        raise MalformedMessage(f"an array of {bits} holds {len(data)} bytes, not {wanted}")
    if bits == "float16":
        values = np.frombuffer(data, _HALF).astype(np.float32)
    else:
        scale = np.frombuffer(data, _SCALE, 1)[0]
        if not (np.isfinite(scale) and scale >= 0):
            raise NotFinite("the scale of an array of int8 holds NaN or infinite values, or is negative")
        # What does not fit is infinite, and refused by whoever reads it.
        with np.errstate(over="ignore"):
            values = np.frombuffer(data, _BYTES, offset=_SCALE.itemsize).astype(np.float32) * scale
    try:
        return values.reshape(shape)
    except ValueError as error:  # too many dimensions or, where one is 0, too large ones
        raise MalformedMessage(f"an array of {bits} has a shape that no array can have") from error


def whole(record: ArrayRecord) -> ArrayRecord:
    """Return a record with its narrow arrays as float32; the record itself where none is narrow."""
    if not any(map(is_narrow, record.values())):
        return record
    return filled(
        ArrayRecord(), {name: write_array(widened(one)) if is_narrow(one) else one for name, one in record.items()}
    )


class Narrowing:
    """Narrows the models that a server sends, each once: equal records stay one object.

    Parameters
    ----------
    wire
        "float16" or "int8".
    names
        Entries of a model that are narrowed.
    """

    def __init__(self, wire: str, names: Collection[str]) -> None:
        self.wire, self._names = wire, frozenset(names)
        # With what was narrowed: an id is an object's own only as long as that lives.
        self._records: dict[int, tuple[ArrayRecord, ArrayRecord]] = {}
        self._arrays: dict[int, tuple[Array, Array]] = {}

    def fresh(self) -> "Narrowing":
        """Return one for other models, which holds none."""
        return Narrowing(self.wire, self._names)

    def record(self, record: ArrayRecord) -> ArrayRecord:
        """Return a record of one model, of several, or of some layers, as it is sent."""
        if id(record) not in self._records:
            sent = {name: self._array(name, array) for name, array in record.items()}
            self._records[id(record)] = record, filled(ArrayRecord(), sent)
        return self._records[id(record)][1]

    def _array(self, name: str, array: Array) -> Array:
        if _plain(name) not in self._names:
            return array
        if id(array) not in self._arrays:
            self._arrays[id(array)] = array, narrow(view_array(array), self.wire)
        return self._arrays[id(array)][1]


def narrow_reply(
    content: RecordDict,
    kind: str,
    config: Mapping[str, Any],
    sent: Mapping[str, ArrayRecord],
    rng: np.random.Generator,
) -> RecordDict:
    """Return a reply with its models as changes in the bits that the message's settings ask for.

    `kind`, `config` and `sent` are the message's type, settings and records of models. Entries that are marked as
    moved by no gradient, that were not sent in this shape, that are not float32, or whose change does not fit
    into the bits stay as they are.
    """
    wire, whole = str(config[kinds.WIRE]), config.get(kinds.UNTRAINED, [])

    def narrowed(name: str, array: Array, start: ArrayRecord | None) -> Array:
        before = None if start is None else start.get(name)
        fits = start is None or (before is not None and tuple(before.shape) == tuple(array.shape))
        if array.dtype != _FLOAT32 or _plain(name) in whole or not fits:
            return array
        values = view_array(array)
        with np.errstate(over="ignore", invalid="ignore"):
            found = narrow(values if before is None else values - view_array(before), wire, rng)
        return found if is_narrow(found) else array

    return _replaced(content, kind, config, sent, narrowed)


def widen_reply(
    content: RecordDict, kind: str, config: Mapping[str, Any], sent: Mapping[str, ArrayRecord]
) -> RecordDict:
    """Return a reply from anywhere with its models whole: the server's own that were `sent`, plus the changes.

    MalformedMessage if an array is the change of none that was sent, or is not what it says. See `narrow_reply`.
    """

    def summed(name: str, array: Array, start: ArrayRecord | None) -> Array:
        if not is_narrow(array):
            return array
        before = None if start is None else start.get(name)
        if start is not None and (before is None or tuple(before.shape) != tuple(array.shape)):
            raise MalformedMessage(f"array {name!r} is the change of none that was sent")
        change = widened(array)
        with np.errstate(over="ignore", invalid="ignore"):
            return write_array(change if before is None else view_array(before) + change)

    return _replaced(content, kind, config, sent, summed)


def _replaced(
    content: RecordDict,
    kind: str,
    config: Mapping[str, Any],
    sent: Mapping[str, ArrayRecord],
    change: Callable[[str, Array, ArrayRecord | None], Array],
) -> RecordDict:
    records = dict(content.items())
    for name in MODEL_RECORDS:
        if isinstance(record := records.get(name), ArrayRecord):
            start = _start(name, kind, config, sent, records)
            records[name] = filled(ArrayRecord(), {own: change(own, array, start) for own, array in record.items()})
    return filled(RecordDict(), records)


def _start(
    name: str, kind: str, config: Mapping[str, Any], sent: Mapping[str, ArrayRecord], reply: Mapping[str, Any]
) -> ArrayRecord | None:
    """Return the record that a reply's has changed, empty where there is none; None for gradients."""
    if name == kinds.ARRAYS and config.get(kinds.REPLY) == kinds.REPLY_GRADIENT:
        return None
    if kind != kinds.TRAIN_SELECT or name not in sent:
        return sent.get(name, _NOTHING)
    chosen = metrics.get(kinds.CHOSEN_MODEL) if (metrics := reply.get(kinds.METRICS)) else None
    if not isinstance(chosen, int):
        raise MalformedMessage(f"{kinds.CHOSEN_MODEL} is not an integer")
    return bank.model(sent[name], chosen)


def _plain(name: str) -> str:
    """Return an entry's name within its model."""
    number, _, own = name.partition("/")
    return own if number.isdecimal() else name
