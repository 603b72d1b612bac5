"""`WorkerPool`: workers that share the messages of an exchange; those that end or hang are replaced."""

import atexit
import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice

from flwr.app import Context, Message

from florets.engines.local_grid import failed
from florets.engines.messages import Answer, unpickled
from florets.engines.processes import READY, Processes, Unit, Worker
from florets.reports.console import counted, say
from florets.strategies.base.federation import FederationError


class WorkersFailed(FederationError):
    """The workers cannot work; the text says why and what to do."""


_MOST_FAILED_STARTS = 3
_AGAIN_SECONDS = 0.5
"""Until a worker is tried again for which the system had no room: what another process held may be free then."""

log = logging.getLogger("florets")


class WorkerPool:
    """Workers that answer the messages of one exchange after the other."""

    def __init__(self, processes: Processes, count: int) -> None:
        self._processes = processes
        self._waiting: deque[Unit] = deque()
        self._ended_cpu = 0.0
        self._failed_starts: Counter[int] = Counter()
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

    def begin(self, units: Sequence[Unit]) -> None:
        """Begin an exchange; who still works for the last one is ended, for nobody waits for it any more."""
        self._waiting = deque()
        for worker in list(self.workers):
            if worker.unit is not None:
                clients = counted(len(worker.unit.sent), "client")
                log.warning("%s did not answer in time for %s: it is replaced", worker.name, clients)
                self._replace(worker)
            elif not (worker.is_ready or worker.has_ended) and worker.age > self._processes.start_limit:
                log.warning("%s was not ready after %g s: it is replaced", worker.name, self._processes.start_limit)
                self._replace(worker)
        self._waiting = deque(units)
        self._processes.begin(message for unit in units for message, _ in unit.sent)
        self._give_all()
        self._prepare()

    def arrived(self, seconds: float) -> Iterator[Message]:
        """Yield the replies that are there, or come first within some seconds.

        Clients of a worker that has ended get error replies, as far as it had their messages in hand. WorkersFailed
        if there are no workers, and no more can be started.
        """
        there = [worker for worker in self.workers if not worker.has_ended]
        if not any(worker.is_busy for worker in there):
            return
        came: list[tuple[Worker, Unit, bytes]] = []
        for worker in self._processes.wait(there, seconds):
            # Replaced already, for it could not take what the one before it left.
            if worker.has_ended:
                continue
            unit, answered = worker.unit, worker.receive()
            if answered is None:
                reason = _why_lost(worker)
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
            self._processes.order(unit)

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
                if not worker.assign(unit, self._processes.order(unit)):
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
            raise WorkersFailed(_cannot_start(worker.ending))
        else:
            log.warning("%s cannot be replaced (%s): others answer for its clients", worker.name, worker.ending)
        self._give_all()

    def _started(self, number: int) -> Worker:
        """Return a new worker; one that the system has no room for is tried once more, and then OSError."""
        try:
            return self._processes.start(number)
        except OSError as error:
            log.warning("no worker can be started, tried once more: %s", error)
        time.sleep(_AGAIN_SECONDS)
        return self._processes.start(number)

    def _show_end(self, worker: Worker, reason: str, owed: int) -> None:
        """Show why a worker has ended, each reason once; the log has every one."""
        log.warning("%s: %s", worker.name, reason)
        if reason not in self._shown:
            self._shown.add(reason)
            lost = f"; the replies of {counted(owed, 'client')} are lost" if owed else ""
            further = "the run goes on, and run.log has every further worker that ends so"
            say(f"florets: {reason.removeprefix('its ')}{lost}; {further}", sys.stderr)

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


def _why_lost(worker: Worker) -> str:
    return f"its worker process ended ({worker.ending}): killed, out of memory, or ended by a client"


def _cannot_start(ending: str) -> str:
    return (
        f"worker processes ended again and again while they started ({ending}); see their output above. To do "
        f"without them: workers=1"
    )
