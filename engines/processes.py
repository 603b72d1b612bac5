"""`ProcessBackend`: worker processes of this machine, which share memory with the first one."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import MappingProxyType, ModuleType
from typing import Any

from flwr.app import Message

from florets.engines.local_grid import answered, as_flowers_process
from florets.engines.messages import Answer, MessageReader, MessageWriter, Sent, pickled
from florets.engines.pool import READY, Backend, ClientSide, LoadClientSide, Unit, Worker
from florets.task import given
from florets.task.device import one_thread_for_good, seldom_collected
from florets.task.shared_file import Place, SharedFile, SharedTask, share_clients
from florets.task.task import Task


@dataclass(frozen=True)
class Order:
    """Messages that a worker is to answer: the exchange's number, their place in the shared file, `Unit`'s block."""

    exchange: int
    place: Place
    block: int = 0


def work(
    pipe: "Connection[Any, Any]",
    load: LoadClientSide,
    file: SharedFile,
    clients: Place | None,
    files: Mapping[str, bytes],
) -> None:
    """Answer the orders that come through a pipe: with `READY`, and then with what `answered_unit` returns.

    Messages and data stand in `file`, the `SharedClients` at the place `clients`; None where nodes have data of their
    own. `files` are objects that were given in Python, see `florets.task.given`.
    """
    # Ctrl-C and the end of a terminal reach all of its processes: the first one ends the others.
    for name in ("SIGINT", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    side, reader = started_side(load, files), MessageReader(file.read)
    if clients is not None:
        side.adopt(SharedTask(pickle.loads(file.read(clients)), file))
    # Closed, or its other end's process gone: there is nothing left to do.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), seldom_collected():
        pipe.send_bytes(READY)
        while True:
            order: Order = pipe.recv()
            sent = reader.unpickled(order.exchange, file.read(order.place))
            pipe.send_bytes(answered_unit(side, sent, order.block))


def started_side(load: LoadClientSide, files: Mapping[str, bytes]) -> ClientSide:
    """Return the ClientApp of a worker that has just started; `files` as for `work`."""
    one_thread_for_good()
    as_flowers_process()
    given.adopt(files)
    return load()


def answered_unit(side: ClientSide, sent: Sent, block: int) -> bytes:
    """Answer messages, as a block of a size or, where that is 0, each by itself; in a worker.

    Return a pickled `Answer` to each, and the process's CPU seconds so far.
    """
    return pickled((list(_answers(side, sent, block)), time.process_time()))


def _answers(side: ClientSide, sent: Sent, block: int) -> Iterator[Answer]:
    for places in side.in_blocks(sent, block) if block else [range(len(sent))]:
        for message, context in (sent[place] for place in places):
            had_state = bool(context.state)
            reply = answered(side.app, message, context)
            yield reply, context.state if had_state or context.state else None


def end_with_parent() -> None:
    """End this process as soon as the one has ended that started it through multiprocessing."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_workers = 0.0


def add_workers(seconds: float) -> None:
    """Count CPU seconds of worker processes that have ended."""
    global _workers
    _workers += seconds


def cpu_seconds() -> float:
    """Return the CPU seconds so far; those of workers count once they have ended."""
    return time.process_time() + _workers


_ENDING_SECONDS = 1.0
"""From the end of a process's pipe to its own."""


class ProcessBackend(Backend):
    """Processes that are copies of a server process, which has loaded the ClientApp and computed nothing.

    A copy of it is made in milliseconds and has none of the threads with which a copy of this process might hang.
    `start_limit` is the seconds that a process may take to start, `files` objects that were given in Python.
    """

    def __init__(
        self,
        load: LoadClientSide,
        start_limit: float = float("inf"),
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self.start_limit = start_limit
        self._load, self._files = load, dict(files)
        self._file = SharedFile()
        self._clients: Place | None = None
        self._writer: MessageWriter | None = None
        self._exchange = 0
        self._orders: dict[int, Order] = {}

    def share(self, task: Task, folders: Sequence[str], side: ClientSide) -> bool:
        """Hand the data of all clients to all workers, which would else load them."""
        # Nodes with data of their own load them; data that change from round to round, and those of very many
        # clients, are made by whoever needs them.
        if task.is_own or task.drifts or task.counts_are_known:
            return False
        clients = share_clients(task, self._file)
        self._clients = self._file.append(pickle.dumps(clients, protocol=5))
        side.adopt(SharedTask(clients, self._file))
        return True

    def start(self, number: int) -> "ProcessWorker":
        """Start a process."""
        return ProcessWorker(number, self._load, self._file, self._clients, self._files, self._order)

    def begin(self, messages: Iterable[Message]) -> None:
        """Begin an exchange; its messages stand behind the clients' data."""
        self._exchange += 1
        self._writer = self._writer or MessageWriter(self._file)
        self._writer.begin(messages)
        self._orders = {}

    def prepare(self, unit: Unit) -> None:
        """Write a unit's messages into memory; they are forgotten when the exchange is over."""
        self._order(unit)

    def wait(self, workers: Sequence[Worker], seconds: float) -> Sequence[Worker]:
        """Wait for the processes' pipes."""
        by_pipe = {worker.pipe: worker for worker in workers if isinstance(worker, ProcessWorker)}
        ready = set(wait(list(by_pipe), seconds))
        return [worker for pipe, worker in by_pipe.items() if pipe in ready]

    def why_lost(self, worker: Worker) -> str:
        """Return why the clients of a process that has ended do not answer."""
        return f"its worker process ended ({worker.ending}): killed, out of memory, or ended by a client"

    def cannot_start(self, ending: str) -> str:
        """Return what to tell where processes cannot start."""
        return (
            f"worker processes ended again and again while they started ({ending}); see their output above. To do "
            f"without them: workers=1"
        )

    def close(self) -> None:
        """Give back the shared memory."""
        self._file.close()

    def _order(self, unit: Unit) -> Order:
        assert self._writer is not None, "an exchange has begun"
        # A unit lives as long as its exchange, and so its id is its own.
        if id(unit) not in self._orders:
            place = self._file.append(self._writer.pickled(unit.sent))
            self._orders[id(unit)] = Order(self._exchange, place, unit.block)
        return self._orders[id(unit)]


class ProcessWorker(Worker):
    """One process at the other end of a pipe."""

    def __init__(
        self,
        number: int,
        load: LoadClientSide,
        file: SharedFile,
        clients: Place | None,
        files: Mapping[str, bytes],
        order: Callable[[Unit], Order],
    ) -> None:
        super().__init__(number)
        self._order = order
        context = multiprocessing.get_context("forkserver")
        self.pipe: Connection[Any, Any]
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, load, file, clients, files)
        self._process = context.Process(target=work, args=arguments, name=f"worker {number}")
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
    def name(self) -> str:
        """The process, for a reader."""
        return f"worker process {self.pid}"

    @property
    def ending(self) -> str:
        """How the process ended, for a reader."""
        self._process.join(_ENDING_SECONDS)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def send(self, unit: Unit) -> bool:
        """Send a unit through the pipe; False where the process has ended."""
        try:
            self.pipe.send(self._order(unit))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def read(self) -> bytes | None:
        """Return what has come through the pipe, None where the process has ended."""
        try:
            return self.pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


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
