"""`Processes`: worker processes of this machine, which share memory with the first one."""

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
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from florets.engines.local_grid import InBlocks, answered, as_flowers_process
from florets.engines.messages import Answer, MessageReader, MessageWriter, Sent, pickled
from florets.task import given
from florets.task.device import one_thread_for_good, seldom_collected
from florets.task.shared_file import Place, SharedFile, SharedTask, share_clients
from florets.task.task import Task


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


READY = b""
"""First thing that a worker sends."""


@dataclass(frozen=True)
class Unit:
    """Messages that one worker answers at a time."""

    sent: Sent
    block: int = 0
    """Size of the block that they are; 0: each is answered by itself."""
    worker: int | None = None
    """Number of the worker that has their clients' data; None: all have them."""


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


class Processes:
    """Processes that are copies of a server process, which has loaded the ClientApp and computed nothing.

    A copy of it is made in milliseconds and has none of the threads with which a copy of this process might hang.

    Attributes
    ----------
    start_limit
        Seconds after which a process that is still not ready is replaced when an exchange begins.
    """

    def __init__(self, load: LoadClientSide, start_limit: float, files: Mapping[str, bytes]) -> None:
        self.start_limit = start_limit
        self._load, self._given = load, dict(files)
        self._file = SharedFile()
        self._clients: Place | None = None
        self._writer: MessageWriter | None = None
        self._exchange = 0
        self._orders: dict[int, Order] = {}

    def share(self, task: Task, side: ClientSide) -> bool:
        """Give the workers the data of a task, before the first of them is started.

        Blocks are cut by this process's `side`. Return whether each worker has the data of all clients at no cost;
        else each makes those of its own clients.
        """
        # Nodes with data of their own load them; data that change from round to round, and those of very many
        # clients, are made by whoever needs them.
        if task.is_own or task.drifts or task.counts_are_known:
            return False
        clients = share_clients(task, self._file)
        self._clients = self._file.append(pickle.dumps(clients, protocol=5))
        side.adopt(SharedTask(clients, self._file))
        return True

    def start(self, number: int) -> "Worker":
        """Start a process; OSError where the system has no room for it."""
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        arguments = (theirs, self._load, self._file, self._clients, self._given)
        process = context.Process(target=work, args=arguments, name=f"worker {number}")
        try:
            with _without_script():
                process.start()
        finally:
            theirs.close()
        return Worker(number, process, ours)

    def begin(self, messages: Iterable[Message]) -> None:
        """Begin an exchange of these messages; those of the last one are gone."""
        self._exchange += 1
        # They stand behind the clients' data.
        self._writer = self._writer or MessageWriter(self._file)
        self._writer.begin(messages)
        self._orders = {}

    def order(self, unit: Unit) -> Order:
        """Write a unit's messages into memory, once; they are forgotten when the exchange is over."""
        assert self._writer is not None, "an exchange has begun"
        # A unit lives as long as its exchange, and so its id is its own.
        if id(unit) not in self._orders:
            place = self._file.append(self._writer.pickled(unit.sent))
            self._orders[id(unit)] = Order(self._exchange, place, unit.block)
        return self._orders[id(unit)]

    def wait(self, workers: Sequence["Worker"], seconds: float) -> "Sequence[Worker]":
        """Wait some seconds, and return the workers that have sent something or ended, as soon as there is one."""
        by_pipe = {worker.pipe: worker for worker in workers}
        ready = set(wait(list(by_pipe), seconds))
        return [worker for pipe, worker in by_pipe.items() if pipe in ready]

    def close(self) -> None:
        """Give back the shared memory; the workers have ended."""
        self._file.close()


class Worker:
    """A process at the other end of a pipe, and what it has in hand.

    Whoever replaces it takes over its number, the place in the pool.
    """

    def __init__(self, number: int, process: BaseProcess, pipe: "Connection[Any, Any]") -> None:
        self.number, self.pipe, self._process = number, pipe, process
        self.unit: Unit | None = None
        self.is_ready = False
        """It has said so."""
        self.is_lost = False
        """It has ended, or replaces one that has and is not ready: others answer for its clients."""
        self.has_ended = False
        """It was ended, or ended by itself."""
        self.cpu_seconds = 0.0
        self._since = time.monotonic()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid or 0

    @property
    def name(self) -> str:
        """The process, for a reader."""
        return f"worker process {self.pid}"

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._since

    @property
    def is_busy(self) -> bool:
        """Whether something will come from it."""
        return not self.has_ended and (not self.is_ready or self.unit is not None)

    @property
    def ending(self) -> str:
        """How the process ended, for a reader."""
        self._process.join(_ENDING_SECONDS)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def assign(self, unit: Unit, order: Order) -> bool:
        """Hand a unit to the worker; False where the process has ended."""
        try:
            self.pipe.send(order)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.unit = unit
        return True

    def receive(self) -> bytes | None:
        """Return `READY`, or pickled answers and CPU seconds so far; None where the process has ended."""
        try:
            reply = self.pipe.recv_bytes()
        except (EOFError, OSError):
            return None
        # It is ready for another unit now.
        self.is_ready, self.is_lost, self.unit = True, False, None
        return reply

    def end(self) -> None:
        """End the process, whatever it does."""
        self.has_ended = self.is_lost = True
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
