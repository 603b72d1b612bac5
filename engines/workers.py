"""`Workers`: processes of this machine that share the messages of an exchange; those that end or hang are replaced.

What they read was written by this process, and what they answer is from processes that it has started.
"""

import contextlib
import copyreg
import io
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from florets.engines.local_grid import InBlocks, answered, as_flowers_process, failed
from florets.reports.console import counted
from florets.strategies.base.federation import FederationError
from florets.task import given
from florets.task.device import one_thread_for_good, seldom_collected
from florets.task.shared_file import Place, SharedFile, SharedTask
from florets.task.task import Task
from florets.task.wire.records import array

Sent = Sequence[tuple[Message, Context]]
"""Messages, and the contexts of the clients that they go to."""

log = logging.getLogger("florets")


class WorkersFailed(FederationError):
    """The workers cannot work; the text says why and what to do."""


@dataclass(frozen=True)
class ClientSide:
    """The ClientApp of this process and how its work is shared out."""

    app: ClientApp
    in_blocks: InBlocks
    cut_blocks: Callable[[Sent, int], tuple[list[int], list[list[int]]]]
    """Returns the places of the messages that are answered alone, and those of each block of at most a number."""
    adopt: Callable[[Task | None], None]
    """Lets this process serve simulated clients from a task that it is handed; None: no more."""


LoadClientSide = Callable[[], ClientSide]
"""A function that another process can import by its name."""


@dataclass(frozen=True)
class Start:
    """What a worker starts with."""

    load: LoadClientSide
    file: SharedFile
    files: Mapping[str, bytes]
    """Objects that were given in Python, see `florets.task.given`."""
    clients: Place | None = None
    """Location of the `SharedClients` in the file; None where each worker makes the data that it needs."""


@dataclass(frozen=True)
class Unit:
    """Messages that one worker answers at a time."""

    sent: Sent
    block: int = 0
    """Size of the block that they are; 0: each is answered by itself."""
    worker: int | None = None
    """Number of the worker that has their clients' data; None: all have them."""


_READY = b""
"""First thing that a worker sends."""


def work(pipe: "Connection[Any, Any]", start: Start) -> None:
    """Answer what comes through a pipe: an exchange's number, where a unit's messages stand, and its block.

    `_READY` is sent first. An answer is a pickled list of replies, each with the client's state where it has one, and
    the CPU seconds since the last answer.
    """
    # Ctrl-C and the end of a terminal reach all of its processes: the first one ends the others.
    for name in ("SIGINT", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    one_thread_for_good()
    as_flowers_process()
    given.adopt(start.files)
    side, file = start.load(), start.file
    if start.clients is not None:
        side.adopt(SharedTask(pickle.loads(file.read(start.clients)), file))
    exchange, records = 0, dict[Place, ArrayRecord]()
    # Closed, or its other end's process gone: there is nothing left to do.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), seldom_collected():
        pipe.send_bytes(_READY)
        while True:
            number, place, block = pipe.recv()
            if number != exchange:
                exchange, records = number, {}
            sent = _Reading(file, records).read(place)
            answers = list(_answers(side, sent, block))
            pipe.send_bytes(pickle.dumps(answers, protocol=5))


def _answers(side: ClientSide, sent: Sent, block: int) -> Iterator[tuple[Message, Any]]:
    for places in side.in_blocks(sent, block) if block else [range(len(sent))]:
        for message, context in (sent[place] for place in places):
            had_state = bool(context.state)
            reply = answered(side.app, message, context)
            yield reply, context.state if had_state or context.state else None


def _plain(values: Array) -> Any:
    # What else an array has noted, such as its values' hash, is computed again on request.
    return array, (values.dtype, values.shape, values.data, values.stype)


copyreg.pickle(Array, _plain)


class _Reading:
    """Reads messages from a shared file; of one exchange equal records are one object."""

    def __init__(self, file: SharedFile, records: dict[Place, ArrayRecord]) -> None:
        self._file, self._records = file, records

    def read(self, place: Place) -> Any:
        """Return what was pickled at a place."""
        unpickler = pickle.Unpickler(io.BytesIO(self._file.read(place)))
        unpickler.persistent_load = self._record  # type: ignore[method-assign]  # pickle's hook for another's objects
        return unpickler.load()

    def _record(self, place: Place) -> ArrayRecord:
        if place not in self._records:
            self._records[place] = self.read(place)
        return self._records[place]


class _Writing:
    """Writes the messages of an exchange to a shared file: records that several of them hold once."""

    def __init__(self, file: SharedFile, units: Sequence[Unit]) -> None:
        self._file = file
        every = (record for unit in units for message, _ in unit.sent for record in message.content.values())
        counts = Counter(id(record) for record in every if type(record) is ArrayRecord)
        # The units keep the records: an id is an object's own only as long as that lives.
        self._several = {number for number, count in counts.items() if count > 1}
        self._places: dict[int, Place] = {}

    def write(self, sent: Sent) -> Place:
        """Return where the messages stand now."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, protocol=5)
        pickler.persistent_id = self._place  # type: ignore[method-assign]  # as above
        pickler.dump(list(sent))
        return self._file.append(stream.getbuffer())

    def _place(self, thing: object) -> Place | None:
        if type(thing) is not ArrayRecord or id(thing) not in self._several:
            return None
        if id(thing) not in self._places:
            self._places[id(thing)] = self._file.append(pickle.dumps(thing, protocol=5))
        return self._places[id(thing)]


def end_with_parent() -> None:
    """End this process as soon as the one has ended that started it through multiprocessing."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_ENDING_SECONDS = 1.0
"""From the end of a process's pipe to its own."""


class Worker:
    """A process at the other end of a pipe, and the unit that it is working on.

    It is a copy of a server process, which has loaded the ClientApp and computed nothing: that is made in
    milliseconds, and has none of the threads with which a copy of this process might hang.
    """

    def __init__(self, number: int, start: Start) -> None:
        self.number = number
        self.unit: Unit | None = None
        self.is_ready = False
        self.began = time.monotonic()
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=work, args=(theirs, start), name=f"worker {number}")
        try:
            with _without_script():
                self._process.start()
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid or 0

    @property
    def ending(self) -> str:
        """How the process ended, for a reader."""
        self._process.join(_ENDING_SECONDS)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def assign(self, unit: Unit, order: tuple[int, Place, int]) -> bool:
        """Hand a unit to the worker; False where the process has ended."""
        try:
            self.pipe.send(order)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.unit = unit
        return True

    def receive(self) -> bytes | None:
        """Return `_READY`, or a pickled answer; None where the process has ended."""
        try:
            reply = self.pipe.recv_bytes()
        except (EOFError, OSError):
            return None
        self.is_ready, self.unit = True, None
        return reply

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


_MOST_FAILED_STARTS = 3
_START_SECONDS = 120.0
"""A worker that has not loaded the ClientApp after so long hangs."""


class Workers:
    """Worker processes that answer the messages of one exchange after the other."""

    def __init__(self, count: int, start: Start) -> None:
        self._start = start
        self._waiting: deque[tuple[Unit, tuple[int, Place, int]]] = deque()
        # Messages stand behind the clients' data.
        self._end = start.file.end
        self._exchange = 0
        self._failed_starts: Counter[int] = Counter()
        self.all: list[Worker] = []
        try:
            for number in range(count):
                self.all.append(self._started(number))
        except BaseException:
            self.close()
            raise

    def begin(self, units: Sequence[Unit]) -> None:
        """Begin an exchange; whoever still works for the last one is ended, since nothing waits for it any longer."""
        self._waiting.clear()
        for worker in [worker for worker in self.all if worker.unit is not None]:
            clients = counted(len(worker.unit.sent), "client") if worker.unit is not None else ""
            log.warning("worker process %d did not answer in time for %s: it is replaced", worker.pid, clients)
            self._replace(worker)
        for worker in self.all:
            if not worker.is_ready and time.monotonic() - worker.began > _START_SECONDS:
                log.warning("worker process %d was not ready after %g s: it is replaced", worker.pid, _START_SECONDS)
                self._replace(worker)
        self._exchange += 1
        self._start.file.shorten(self._end)
        writing = _Writing(self._start.file, units)
        for unit in units:
            self._waiting.append((unit, (self._exchange, writing.write(unit.sent), unit.block)))
            # The first ones begin while the others' messages are written.
            self._give_all()

    def arrived(self, seconds: float) -> Iterator[Message]:
        """Yield the replies that are there, or come first within some seconds.

        Clients of a worker that has ended get error replies, as far as it had their messages in hand. WorkersFailed
        where a worker ends again and again while it starts.
        """
        busy = {worker.pipe: worker for worker in self.all if worker.unit is not None or not worker.is_ready}
        came: list[tuple[Unit, bytes]] = []
        for pipe in wait(list(busy), seconds) if busy else ():
            worker = busy[pipe]  # type: ignore[index]  # they are what was waited for
            # Replaced already, for it could not take what the one before it left.
            if worker is not self.all[worker.number]:
                continue
            unit, answer = worker.unit, worker.receive()
            if answer is None:
                reason = f"its worker process ended ({worker.ending}): killed, out of memory, or ended by a client"
                log.warning("worker process %d: %s", worker.pid, reason)
                self._replace(worker)
                if unit is not None:
                    yield from (failed(message, reason) for message, _ in unit.sent)
                continue
            self._failed_starts[worker.number] = 0
            self._give_all()
            if unit is not None:
                came.append((unit, answer))
        # Read while all workers have something to do.
        for unit, answer in came:
            yield from _read(unit, answer)

    def _give_all(self) -> None:
        """Hand each worker that has nothing to do the next unit that it may have."""
        for worker in self.all:
            if not worker.is_ready or worker.unit is not None:
                continue
            for place, (unit, order) in enumerate(self._waiting):
                if unit.worker in (None, worker.number):
                    del self._waiting[place]
                    if not worker.assign(unit, order):
                        self._waiting.appendleft((unit, order))
                        self._replace(worker)
                    break

    def _replace(self, worker: Worker) -> None:
        """Start another worker in the place of one that is ended, or has ended by itself."""
        if not worker.is_ready:
            self._failed_starts[worker.number] += 1
        worker.end()
        if self._failed_starts[worker.number] >= _MOST_FAILED_STARTS:
            raise WorkersFailed(
                f"worker processes ended again and again while they started ({worker.ending}); see their output "
                "above. To do without them: workers=1"
            )
        self.all[worker.number] = self._started(worker.number)

    def _started(self, number: int) -> Worker:
        try:
            return Worker(number, self._start)
        except OSError as error:
            raise WorkersFailed(
                f"worker {number + 1} cannot be started ({error}); use fewer workers if the system cannot start more"
            ) from error

    def close(self) -> None:
        """End all workers."""
        self._waiting.clear()
        for worker in self.all:
            worker.end()


def _read(unit: Unit, answer: bytes) -> Iterator[Message]:
    contexts = {message.metadata.message_id: context for message, context in unit.sent}
    for reply, state in pickle.loads(answer):
        if state is not None:
            contexts[reply.metadata.reply_to_message_id].state = state
        yield reply


@contextmanager
def _without_script() -> Iterator[None]:
    """Keep a process that is started from running the caller's script: it would start the same run again.

    Python does so for the sake of what stands in the script; workers are handed that (`florets.task.given`).
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
