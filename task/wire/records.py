"""Flower's records and messages, filled and read at a fraction of the cost of one value at a time.

A record looks at each value that is put into it, which makes a typing object anew each time: 3 to 5 microseconds a
value, most of what a message of a few numbers costs. Here values of the common types, which are always legal, go into
the record's own dictionary at once; all others go through Flower's checks. Nothing else knows that dictionary.
Flower's constructor of messages likewise takes longer than reading or writing what a message holds.
"""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict

# The sender of a new message: `Message(...)` asks it as well.
from flwr.supercore.task_identity import TaskIdentity

from florets.task.wire import kinds

_Record = TypeVar("_Record", ConfigRecord, MetricRecord)
_Any = TypeVar("_Any", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)
Record = ArrayRecord | ConfigRecord | MetricRecord

_DATA = "_data"
_NUMBERS = frozenset({int, float})
_SCALARS = _NUMBERS | {str, bool, bytes}
_KEYS = frozenset({str})
_RECORDS = frozenset({ArrayRecord, ConfigRecord, MetricRecord})
# All that an empty record holds beside its values: the functions that look at each.
_EMPTY: dict[type, dict[str, Any]] = {kind: vars(kind()) for kind in (*_RECORDS, RecordDict)}


def entries(record: Record | RecordDict) -> Mapping[str, Any]:
    """Return what a record, or a message's content, holds, as a plain dictionary to read from: it is its own."""
    found: dict[str, Any] = record.__dict__[_DATA]
    return found


def filled(record: _Record, values: Mapping[str, Any]) -> _Record:
    """Put values into a record and return it.

    Raises
    ------
    TypeError
        If Flower takes no such value.
    """
    legal = _NUMBERS if type(record) is MetricRecord else _SCALARS
    data: dict[str, Any] = record.__dict__[_DATA]
    if legal.issuperset(map(type, values.values())) and _KEYS.issuperset(map(type, values)):
        data.update(values)
        return record
    for name, value in values.items():
        kind = type(value)
        if kind is list and value:
            kinds = set(map(type, value))
            # Flower wants one type in a list.
            kind = kinds.pop() if len(kinds) == 1 else list
        # Compared by type: of a subclass, such as a NumPy number, Flower itself says whether it takes it.
        if kind in legal and type(name) is str:
            data[name] = value
        else:
            record[name] = value
    return record


def config_record(values: Mapping[str, Any]) -> ConfigRecord:
    """Return ``ConfigRecord(values)``."""
    return filled(_empty(ConfigRecord), values)


def metric_record(values: Mapping[str, Any]) -> MetricRecord:
    """Return ``MetricRecord(values)``."""
    return filled(_empty(MetricRecord), values)


def record_dict(records: Mapping[str, Record]) -> RecordDict:
    """Return ``RecordDict(records)``."""
    content = _empty(RecordDict)
    put(content, records)
    return content


def put(content: RecordDict, records: Mapping[str, Record]) -> None:
    """Put records into a message's content, under names that it does not have yet."""
    data = content.__dict__[_DATA]
    for name, record in records.items():
        if type(name) is str and type(record) in _RECORDS:
            data[name] = record
        else:
            content[name] = record


def array_record(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a record of these arrays themselves: Flower's constructor makes each anew, twice over."""
    record = _empty(ArrayRecord)
    data = record.__dict__[_DATA]
    for name, array in arrays.items():
        if type(name) is str and type(array) is Array:
            data[name] = array
        else:
            record[name] = array
    return record


def _empty(kind: type[_Any]) -> _Any:
    """Return ``kind()``."""
    return restored(kind, {})


def array(dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    """Return ``Array(dtype, shape, "numpy.ndarray", data)``, without its search for how it was called."""
    made = Array.__new__(Array)
    made.__dict__.update(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data)
    return made


def restored(kind: type[_Any], values: dict[str, Any]) -> _Any:
    """Return a record that holds `values` themselves, which have been in one of its kind: none is checked again."""
    made = kind.__new__(kind)
    made.__dict__.update(_EMPTY[kind], _data=values)
    return made


def new_message(content: RecordDict, node_id: int, kind: str, ttl: float, group_id: str) -> Message:
    """Return ``Message(content, node_id, kind, ttl=ttl, group_id=group_id)``.

    Parameters
    ----------
    ttl
        Seconds, above 0.

    Raises
    ------
    ValueError
        If Flower takes no message of such a type.
    """
    _check(kind)
    return _filled(
        content,
        {
            "_run_id": TaskIdentity.run_id,
            "_message_id": "",
            "_src_node_id": TaskIdentity.node_id,
            "_dst_node_id": node_id,
            "_src_task_id": TaskIdentity.task_id,
            "_dst_task_id": None,
            "_reply_to_message_id": "",
            "_group_id": group_id,
            "_created_at": time.time(),
            "_ttl": ttl,
            "_message_type": kind,
            "_delivered_at": "",
        },
    )


def reply_message(content: RecordDict, message: Message) -> Message:
    """Return ``Message(content, reply_to=message)``: it lives as long as the message that it answers."""
    sent, now = vars(message.metadata), time.time()
    return _filled(
        content,
        {
            "_run_id": sent["_run_id"],
            "_message_id": "",
            "_src_node_id": sent["_dst_node_id"],
            "_dst_node_id": sent["_src_node_id"],
            "_src_task_id": sent["_dst_task_id"],
            "_dst_task_id": sent["_src_task_id"],
            "_reply_to_message_id": sent["_message_id"],
            "_group_id": sent["_group_id"],
            "_created_at": now,
            "_ttl": sent["_created_at"] + sent["_ttl"] - now,
            "_message_type": sent["_message_type"],
            "_delivered_at": "",
        },
    )


def _filled(content: RecordDict, fields: dict[str, Any]) -> Message:
    metadata = Metadata.__new__(Metadata)
    metadata.__dict__.update(fields)
    message = Message.__new__(Message)
    message.__dict__.update(_metadata=metadata, _content=content, _error=None)
    return message


@lru_cache(maxsize=64)
def _check(kind: str) -> None:
    Message(RecordDict(), 0, kind)


_NUMBER_BYTES = 8


def payload_bytes(content: RecordDict) -> int:
    """Return the bytes of a message's arrays, numbers and texts; keys, framing and `kinds.WORK` are not counted.

    Nor is the name of a handler, which takes the place of a message's type.

    Flower's own `count_bytes` refuses empty texts and lists, which are legal values.
    """
    total = 0
    for name, record in entries(content).items():
        if name == kinds.WORK:
            continue
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) for array in entries(record).values())
        elif isinstance(record, (MetricRecord, ConfigRecord)):  # a union costs more than all the rest
            values = entries(record).values()
            others = [value for value in values if type(value) not in _NUMBERS]
            total += _NUMBER_BYTES * (len(values) - len(others)) + sum(map(_value_bytes, others))
            if kinds.HANDLER in record:
                total -= _value_bytes(record[kinds.HANDLER])
    return total


def _value_bytes(value: object) -> int:
    if isinstance(value, list):
        # A record's lists hold values of one type.
        texts = bool(value) and isinstance(value[0], str | bytes)
        return sum(map(_value_bytes, value)) if texts else _NUMBER_BYTES * len(value)
    return len(value) if isinstance(value, str | bytes) else _NUMBER_BYTES
