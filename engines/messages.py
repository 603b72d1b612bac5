"""Messages and contexts as bytes for another process; what several messages hold stands in memory that both read.

What is read was written by this process, or by one that it has started.
"""

import copyreg
import io
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

from florets.task.shared_file import Place, SharedFile
from florets.task.wire.records import array

Sent = Sequence[tuple[Message, Context]]
"""Messages, and the contexts of the clients that they go to."""

Answer = tuple[Message, RecordDict | None]
"""A reply, with the client's state where it has one."""

PlaceOf = Callable[[ArrayRecord], Place | None]
"""Says where a record stands in memory that all processes read; None: nowhere, so that it is sent."""

RecordAt = Callable[[Place], ArrayRecord]
"""Reads what stands there."""


def pickled(things: object, place_of: PlaceOf | None = None) -> bytes:
    """Return anything made of messages, contexts and records as bytes."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    own: dict[type, Callable[[Any], Any]] = {Array: _plain}
    if place_of is not None:
        own[ArrayRecord] = _or_place(place_of)
    pickler.dispatch_table = {**copyreg.dispatch_table, **own}
    pickler.dump(things)
    return stream.getvalue()


def unpickled(data: bytes | memoryview, record_at: RecordAt | None = None) -> Any:
    """Return what `pickled` was given."""
    return pickle.loads(data) if record_at is None else _Reading(io.BytesIO(data), record_at).load()


def _plain(values: Array) -> Any:
    # What else an array has noted, such as its values' hash, is computed again on request.
    return array, (values.dtype, values.shape, values.data, values.stype)


class _Reading(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, record_at: RecordAt) -> None:
        super().__init__(stream)
        self._record_at = record_at

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == record_at_place.__name__:
            return self._record_at
        return super().find_class(module, name)


def record_at_place(place: Place) -> ArrayRecord:
    """Stand for the reader's own function, which reads the record."""
    raise ValueError(f"nobody reads {place} here")


def _or_place(place_of: PlaceOf) -> Callable[[ArrayRecord], Any]:
    def reduced(record: ArrayRecord) -> Any:
        place = place_of(record)
        return record.__reduce_ex__(5) if place is None else (record_at_place, (place,))

    return reduced


class MessageWriter:
    """Writes the messages of one exchange after the other; records go into memory, behind what is in it."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._start = file.end
        self._several: dict[int, ArrayRecord] = {}
        self._places: dict[int, Place] = {}

    def begin(self, messages: Iterable[Message]) -> None:
        """Begin an exchange of these messages; those of the last one are gone."""
        every = (record for message in messages for record in message.content.values())
        records = [record for record in every if type(record) is ArrayRecord]
        counts = Counter(map(id, records))
        # They are kept: an id is a record's own only as long as that lives.
        self._several = {id(record): record for record in records if counts[id(record)] > 1}
        self._places = {}
        self._file.shorten(self._start)

    def pickled(self, sent: Sent) -> bytes:
        """Return some of the exchange's messages as bytes, which name the places of what several of them hold."""
        return pickled(list(sent), self.place)

    def place(self, record: ArrayRecord) -> Place | None:
        """Return where a record stands that several messages hold, None for others."""
        if id(record) not in self._several:
            return None
        if id(record) not in self._places:
            self._places[id(record)] = self._file.append(pickled(record))
        return self._places[id(record)]


class MessageReader:
    """Reads what a `MessageWriter` has written, in another process; `read` returns what stands at a place."""

    def __init__(self, read: Callable[[Place], bytes | memoryview]) -> None:
        self._read = read
        self._exchange = 0
        self._records: dict[Place, ArrayRecord] = {}

    def unpickled(self, exchange: int, data: bytes | memoryview) -> Sent:
        """Return the messages that the writer gave as bytes; of one exchange equal records are one object."""
        if exchange != self._exchange:
            self._exchange, self._records = exchange, {}
        sent: Sent = unpickled(data, self.record)
        return sent

    def record(self, place: Place) -> ArrayRecord:
        """Return the record at a place."""
        if place not in self._records:
            self._records[place] = unpickled(self._read(place))
        return self._records[place]
