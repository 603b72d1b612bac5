"""Payload of a record, in bytes."""

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.records import entries

_NUMBER_BYTES = 8
_NUMBERS = frozenset({int, float})


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
