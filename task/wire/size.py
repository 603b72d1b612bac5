"""Payload of a record, in bytes."""

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.records import entries

_NUMBER_BYTES = 8


def payload_bytes(content: RecordDict) -> int:
    """Return the bytes of a message's arrays, numbers and texts; keys, framing and `kinds.WORK` are not counted.

    Flower's own `count_bytes` refuses empty texts and lists, which are legal values.
    """
    total = 0
    for name, record in content.items():
        if name == kinds.WORK:
            continue
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) for array in record.values())
        elif isinstance(record, (MetricRecord, ConfigRecord)):  # a union costs more than all the rest
            for value in entries(record).values():
                kind = type(value)
                if kind is int or kind is float:
                    total += _NUMBER_BYTES
                elif kind is str:
                    total += len(value)
                else:
                    total += _value_bytes(value)
    return total


def _value_bytes(value: object) -> int:
    if isinstance(value, list):
        # A record's lists hold values of one type.
        texts = bool(value) and isinstance(value[0], str | bytes)
        return sum(map(_value_bytes, value)) if texts else _NUMBER_BYTES * len(value)
    return len(value) if isinstance(value, str | bytes) else _NUMBER_BYTES
