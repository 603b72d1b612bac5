"""`WorkerPool`: workers that share the messages of an exchange; those that end or hang are replaced."""

import atexit
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from florets.engines.local_grid import InBlocks, failed
from florets.engines.messages import Answer, Sent, unpickled
from florets.reports.console import counted, say
from florets.strategies.base.federation import FederationError
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


class WorkersFailed(FederationError):
    """The workers cannot work; the text says why and what to do."""


@dataclass(frozen=True)
class Unit:
    """Messages that one worker answers at a time."""

    sent: Sent
    block: int = 0
    """Size of the block that they are; 0: each is answered by itself."""
    worker: int | None = None
    """Number of the worker that has their clients' data; None: all have them."""


class Worker(ABC):
    """One worker, and what it has in hand; whoever replaces it takes over its number, the place in the pool."""

    def __init__(self, number: int) -> None:
        self.number = number
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
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._since

    @property
    def is_busy(self) -> bool:
        """Whether something will come from it."""
        return not self.has_ended and (not self.is_ready or self.unit is not None)

    @property
    @abstractmethod
    def name(self) -> str:
        """It, for a reader."""

    @property
    @abstractmethod
    def ending(self) -> str:
        """How it ended, for a reader."""

    def assign(self, unit: Unit) -> bool:
        """Hand a unit to the worker, and say whether it is still there to take it."""
        if not self.send(unit):
            return False
        self.unit = unit
        return True

    def receive(self) -> bytes | None:
        """Return what has come from the worker, None where it has ended; it is ready for another unit then."""
        reply = self.read()
        if reply is not None:
            self.is_ready, self.is_lost, self.unit = True, False, None
        return reply

    def end(self) -> None:
        """End the worker, whatever it does."""
        self.has_ended = self.is_lost = True
        self.kill()

    @abstractmethod
    def send(self, unit: Unit) -> bool:
        """Send a unit; False where nobody is there any more."""

    @abstractmethod
    def read(self) -> bytes | None:
        """Return `READY`, or pickled answers and CPU seconds so far; None where it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End it."""


class Backend(ABC):
    """Where the workers run, and what they share."""

    start_seconds: float | None = None
    """How long a run waits at its start for all workers, and later for any; None: it does not look."""
    start_limit = float("inf")
    """Seconds after which a worker that is still not ready is replaced when an exchange begins."""
    units = 16
    """Of an exchange, for each worker: few enough to cost little, many enough that all end at about one time."""

    @abstractmethod
    def share(self, task: Task, folders: Sequence[str], side: ClientSide) -> bool:
        """Give the workers the data of a task, before the first of them is started.

        `folders` are those of nodes that have data of their own; blocks are cut by this process's `side`. Return
        whether each worker has the data of all clients at no cost; else each makes those of its own clients.
        """

    @abstractmethod
    def start(self, number: int) -> Worker:
        """Start a worker."""

    @abstractmethod
    def begin(self, messages: Iterable[Message]) -> None:
        """Begin an exchange of these messages; those of the last one are gone."""

    def prepare(self, unit: Unit) -> None:  # noqa: B027 - nothing has to be done
        """Do what can be done for a unit of this exchange before a worker takes it; it may come again."""

    @abstractmethod
    def wait(self, workers: Sequence[Worker], seconds: float) -> Sequence[Worker]:
        """Wait some seconds, and return the workers that have sent something or ended, as soon as there is one."""

    @abstractmethod
    def why_lost(self, worker: Worker) -> str:
        """Return why the clients of a worker that has ended do not answer."""

    @abstractmethod
    def cannot_start(self, ending: str) -> str:
        """Return what to tell where workers cannot start, from the ending of one."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the workers shared; they have ended."""


_MOST_FAILED_STARTS = 3
_AGAIN_SECONDS = 0.5
"""Until a worker is tried again for which the system had no room: what another process held may be free then."""

log = logging.getLogger("florets")


class WorkerPool:
    """Workers that answer the messages of one exchange after the other."""

    def __init__(self, backend: Backend, count: int) -> None:
        self._backend = backend
        self._waiting: deque[Unit] = deque()
        self._ended_cpu = 0.0
        self._failed_starts: Counter[int] = Counter()
        self._none_since: float | None = None
        self._shown = set[str]()
        self.workers: list[Worker] = []
        # Else Python would wait at its end for processes that wait for orders.
        atexit.register(self.close)
        try:
            for number in range(count):
                try:
                    self.workers.append(self._started(number))
                except OSError as error:
                    raise WorkersFailed(
                        f"worker {number + 1} of {count} cannot be started ({error}); use fewer workers if the "
                        f"system has no room for more"
                    ) from error
        except BaseException:
            self.close()
            raise

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until all workers are ready; others answer for the clients of those that are not after some seconds.

        WorkersFailed if one cannot start, or none is ready in time.
        """
        deadline = time.monotonic() + seconds
        while waiting := [worker for worker in self.workers if not worker.is_ready]:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for worker in self._backend.wait(waiting, left):
                if worker.receive() is None:
                    raise WorkersFailed(self._backend.cannot_start(worker.ending))
        if len(waiting) == len(self.workers):
            raise WorkersFailed(self._backend.cannot_start(f"none was ready after {seconds:g} s"))
        for worker in waiting:
            worker.is_lost = True
            log.warning(
                "%s was not ready after %g s: others answer for its clients until it is", worker.name, seconds
            )

    def begin(self, units: Sequence[Unit]) -> None:
        """Begin an exchange; who still works for the last one is ended, for nobody waits for it any more."""
        self._waiting = deque()
        for worker in list(self.workers):
            if worker.unit is not None:
                clients = counted(len(worker.unit.sent), "client")
                log.warning("%s did not answer in time for %s: it is replaced", worker.name, clients)
                self._replace(worker)
            elif not (worker.is_ready or worker.has_ended) and worker.age > self._backend.start_limit:
                log.warning("%s was not ready after %g s: it is replaced", worker.name, self._backend.start_limit)
                self._replace(worker)
        self._waiting = deque(units)
        self._backend.begin(message for unit in units for message, _ in unit.sent)
        self._give_all()
        self._prepare()

    def arrived(self, seconds: float) -> Iterator[Message]:
        """Yield the replies that are there, or come first within some seconds.

        Clients of a worker that has ended get error replies, as far as it had their messages in hand. WorkersFailed
        if there are no workers, and no more can be started.
        """
        self._check_any()
        there = [worker for worker in self.workers if not worker.has_ended]
        if not any(worker.is_busy for worker in there):
            return
        came: list[tuple[Worker, Unit, bytes]] = []
        for worker in self._backend.wait(there, seconds):
            # Replaced already, for it could not take what the one before it left.
            if worker.has_ended:
                continue
            unit, answered = worker.unit, worker.receive()
            if answered is None:
                reason = self._backend.why_lost(worker)
                self._replace(worker)
                self._show_end(worker, reason, 0 if unit is None else len(unit.sent))
                if unit is not None:
                    yield from (failed(message, reason) for message, _ in unit.sent)
                continue
            self._failed_starts[worker.number] = 0
            self._give(worker)
            if unit is not None and answered != READY:
                came.append((worker, unit, answered))
        # Read while all workers have something to do.
        self._prepare()
        for worker, unit, answered in came:
            yield from self._read(worker, unit, answered)

    def _read(self, worker: Worker, unit: Unit, answered: bytes) -> Iterator[Message]:
        answers: list[Answer]
        answers, worker.cpu_seconds = unpickled(answered)
        contexts: dict[str, Context] = {}
        for reply, state in answers:
            if state is not None:
                contexts = contexts or {message.metadata.message_id: context for message, context in unit.sent}
                contexts[reply.metadata.reply_to_message_id].state = state
            yield reply

    def _prepare(self) -> None:
        """Get ready what is handed out next, for which a worker would else have to wait."""
        for unit in islice(self._waiting, len(self.workers)):
            self._backend.prepare(unit)

    def _give_all(self) -> None:
        for worker in list(self.workers):
            self._give(worker)

    def _give(self, worker: Worker) -> None:
        """Hand the next unit that it may have to a worker that has none."""
        if worker.has_ended or not worker.is_ready or worker.unit is not None:
            return
        for place, unit in enumerate(self._waiting):
            owner = worker if unit.worker is None else self.workers[unit.worker]
            if owner is worker or owner.is_lost:
                del self._waiting[place]
                if not worker.assign(unit):
                    self._waiting.appendleft(unit)
                    self._replace(worker)
                return

    def _replace(self, worker: Worker) -> None:
        """Start another worker in the place of one that is ended, or has ended by itself.

        Where that has failed several times its clients are left to the others.
        """
        if not worker.is_ready:
            self._failed_starts[worker.number] += 1
        self._ended_cpu += worker.cpu_seconds
        worker.end()
        new = None
        if self._failed_starts[worker.number] < _MOST_FAILED_STARTS:
            try:
                new = self._started(worker.number)
            except OSError as error:
                log.warning("no worker can be started: %s", error)
        if new is not None:
            new.is_lost = True
            self.workers[worker.number] = new
        elif all(other.has_ended for other in self.workers):
            raise WorkersFailed(self._backend.cannot_start(worker.ending))
        else:
            log.warning("%s cannot be replaced (%s): others answer for its clients", worker.name, worker.ending)
        self._give_all()

    def _started(self, number: int) -> Worker:
        """Return a new worker; one that the system has no room for is tried once more, and then OSError."""
        try:
            return self._backend.start(number)
        except OSError as error:
            log.warning("no worker can be started, tried once more: %s", error)
        time.sleep(_AGAIN_SECONDS)
        return self._backend.start(number)

    def _show_end(self, worker: Worker, reason: str, owed: int) -> None:
        """Show why a worker has ended, each reason once; the log has every one."""
        log.warning("%s: %s", worker.name, reason)
        if reason not in self._shown:
            self._shown.add(reason)
            lost = f"; the replies of {counted(owed, 'client')} are lost" if owed else ""
            further = "the run goes on, and run.log has every further worker that ends so"
            say(f"florets: {reason.removeprefix('its ')}{lost}; {further}", sys.stderr)

    def _check_any(self) -> None:
        """Hold the time without any worker to the backend's limit: its machines may all have gone."""
        limit = self._backend.start_seconds
        if limit is None or any(worker.is_ready and not worker.has_ended for worker in self.workers):
            self._none_since = None
            return
        now = time.monotonic()
        self._none_since = self._none_since or now
        if now - self._none_since > limit:
            raise WorkersFailed(self._backend.cannot_start(f"none was ready for {limit:g} s"))

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the workers, as far as they have reported them."""
        return self._ended_cpu + sum(worker.cpu_seconds for worker in self.workers if not worker.has_ended)

    def close(self) -> None:
        """End all workers."""
        atexit.unregister(self.close)
        self._waiting.clear()
        for worker in self.workers:
            if worker.has_ended:
                continue
            try:
                worker.end()
            # One that cannot be ended must not keep the others from it.
            except Exception:
                log.warning("%s could not be ended", worker.name, exc_info=True)
