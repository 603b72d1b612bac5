"""`WorkerPool`: worker processes that share the messages of an exchange; those that end or hang are replaced."""

import atexit
import logging
import multiprocessing
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from flwr.app import Message

from florets.server_app.console import counted
from florets.server_app.local_grid import failed
from florets.server_app.workers.client_side import LoadClientSide
from florets.server_app.workers.shared_messages import MessageWriter, Sent
from florets.server_app.workers.worker import READY, Answers, Order, work
from florets.task.shared_clients import SharedClients
from florets.task.shared_file import Place, SharedFile

_MOST_FAILED_STARTS = 3
_ENDING_SECONDS = 1.0
"""From the end of a process's pipe to its own."""

log = logging.getLogger("florets")


class WorkersFailed(RuntimeError):
    """The worker processes cannot work; the text says why and what to do."""


@dataclass(frozen=True)
class Unit:
    """Messages that one worker answers at a time.

    Parameters
    ----------
    sent
        The messages and their clients' contexts.
    block
        Size of the block that they are; 0: each is answered by itself.
    worker
        Number of the worker that has their clients' data; None: all have them.
    """

    sent: Sent
    block: int = 0
    worker: int | None = None


class WorkerPool:
    """Processes that answer the messages of one exchange after the other.

    They are started by a server process that has loaded the ClientApp and computed nothing: a copy of it is made in
    milliseconds and has none of the threads with which a copy of this process might hang.

    Parameters
    ----------
    load
        Brings the ClientApp; other processes import it by its name.
    count
        Number of processes.
    file
        What they share; the messages come behind what is in it.
    clients
        Where the clients' data stand in it; None: each worker loads those of its own clients.
    """

    def __init__(self, load: LoadClientSide, count: int, file: SharedFile, clients: SharedClients | None) -> None:
        place = None if clients is None else file.append(pickle.dumps(clients, protocol=5))
        self._start = (load, file, place)
        self._writer = MessageWriter(file)
        self._exchange = 0
        self._waiting: deque[Unit] = deque()
        self._ended_cpu = 0.0
        self._failed_starts = 0
        self.workers: list[_Worker] = []
        # Else Python would wait at its end for processes that wait for orders.
        atexit.register(self.close)
        try:
            for number in range(count):
                self.workers.append(_Worker(number, *self._start))
        except BaseException:
            self.close()
            raise

    def begin(self, units: Sequence[Unit]) -> None:
        """Begin an exchange; who still works for the last one is ended, for nobody waits for it any more."""
        self._waiting = deque(units)
        for worker in self.workers:
            if worker.unit is not None:
                clients = counted(len(worker.unit.sent), "client")
                log.warning("worker process %d did not answer in time for %s: it is replaced", worker.pid, clients)
                self._replace(worker)
        self._exchange += 1
        self._writer.begin(message for unit in units for message, _ in unit.sent)
        for worker in self.workers:
            self._give(worker)

    def arrived(self, seconds: float) -> Iterator[Message]:
        """Yield the replies that are there, or come first within some seconds.

        Clients of a worker that has ended get error replies, as far as it had their messages in hand.

        Raises
        ------
        WorkersFailed
            If processes end again and again while they start.
        """
        pipes = [worker.pipe for worker in self.workers]
        ready = set(wait(pipes, seconds)) if any(worker.is_busy for worker in self.workers) else set()
        for worker in self.workers:
            if worker.pipe not in ready:
                continue
            unit, said = worker.unit, worker.said()
            if said is None:
                reason = f"its worker process ended ({worker.ending}): killed, out of memory, or ended by a client"
                self._replace(worker)
                if unit is not None:
                    yield from (failed(message, reason) for message, _ in unit.sent)
                continue
            self._failed_starts = 0
            self._give(worker)
            if unit is not None and said != READY:
                yield from self._read(worker, unit, said)

    def _read(self, worker: "_Worker", unit: Unit, said: bytes) -> Iterator[Message]:
        answers: Answers
        answers, worker.cpu_seconds = pickle.loads(said)
        contexts = {message.metadata.message_id: context for message, context in unit.sent}
        for reply, state in answers:
            if state is not None:
                contexts[reply.metadata.reply_to_message_id].state = state
            yield reply

    def _give(self, worker: "_Worker") -> None:
        """Hand the next unit that it may have to a worker that has none."""
        if not worker.is_ready or worker.unit is not None:
            return
        for place, unit in enumerate(self._waiting):
            if unit.worker in (None, worker.number):
                order = Order(self._exchange, self._writer.write(unit.sent), unit.block)
                if worker.takes(unit, order):
                    del self._waiting[place]
                else:
                    self._replace(worker)
                return

    def _replace(self, worker: "_Worker") -> None:
        """Start another process in the place of one that is ended, or has ended by itself."""
        if not worker.is_ready:
            self._failed_starts += 1
        self._ended_cpu += worker.cpu_seconds
        worker.end()
        if self._failed_starts >= _MOST_FAILED_STARTS:
            raise WorkersFailed(
                f"{self._failed_starts} worker processes ended while they started ({worker.ending}); what they wrote "
                "is above. Run with workers=1"
            )
        self.workers[worker.number] = _Worker(worker.number, *self._start)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the workers, as far as they have told; their start is the server process's."""
        return self._ended_cpu + sum(worker.cpu_seconds for worker in self.workers)

    def close(self) -> None:
        """End all processes."""
        atexit.unregister(self.close)
        self._waiting.clear()
        for worker in self.workers:
            worker.end()


class _Worker:
    """One process, and what it has in hand."""

    def __init__(self, number: int, load: LoadClientSide, file: SharedFile, clients: Place | None) -> None:
        self.number = number
        self.unit: Unit | None = None
        self.is_ready = False
        self.cpu_seconds = 0.0
        context = multiprocessing.get_context("forkserver")
        self.pipe: Connection[Any, Any]
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, load, file, clients), name=f"worker {number}")
        try:
            self._process.start()
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid or 0

    @property
    def is_busy(self) -> bool:
        """Whether something will come from it."""
        return not self.is_ready or self.unit is not None

    @property
    def ending(self) -> str:
        """How the process ended, for a reader."""
        self._process.join(_ENDING_SECONDS)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def takes(self, unit: Unit, order: Order) -> bool:
        """Hand a unit to the process, and say whether it is still there to take it."""
        try:
            self.pipe.send(order)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.unit = unit
        return True

    def said(self) -> bytes | None:
        """Return what has come from the process, None where it has ended; it is ready for another unit then."""
        try:
            said = self.pipe.recv_bytes()
        except (EOFError, OSError):
            return None
        self.is_ready, self.unit = True, None
        return said

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.pipe.close()
