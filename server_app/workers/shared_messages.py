"""Messages and their records in shared memory: a record that several of them hold is written and read once."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from flwr.app import ArrayRecord, Message

from florets.engines.messages import Sent, pickled, unpickled
from florets.task.shared_file import Place


class Readable(Protocol):
    """Memory that a process reads, such as a `SharedFile`."""

    def read(self, place: Place) -> bytes | memoryview:
        """Return what stands at a place."""


class Writable(Protocol):
    """Memory that a process writes, such as a `SharedFile`."""

    @property
    def end(self) -> int:
        """Where the next thing is written."""

    def append(self, data: bytes | memoryview) -> Place:
        """Write behind all that was written, and return where."""

    def shorten(self, end: int) -> None:
        """Forget all from `end` on."""


class MessageWriter:
    """Writes the messages of one exchange after the other; records go into memory, behind what is in it.

    Parameters
    ----------
    file
        The memory.
    """

    def __init__(self, file: Writable) -> None:
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
    """Reads what a `MessageWriter` has written, in another process.

    Parameters
    ----------
    file
        The memory.
    """

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._exchange = 0
        self._records: dict[Place, ArrayRecord] = {}

    def read(self, exchange: int, place: Place) -> Sent:
        """Return the messages at a place; see `unpickled`."""
        return self.unpickled(exchange, self._file.read(place))

    def unpickled(self, exchange: int, data: bytes | memoryview) -> Sent:
        """Return the messages that the writer gave as bytes; of one exchange equal records are one object."""
        if exchange != self._exchange:
            self._exchange, self._records = exchange, {}
        sent: Sent = unpickled(data, self.record)
        return sent

    def record(self, place: Place) -> ArrayRecord:
        """Return the record at a place."""
        if place not in self._records:
            self._records[place] = unpickled(self._file.read(place))
        return self._records[place]
