"""`Backend` and `Worker`: the place where workers run and one worker of it, as a pool knows them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message

from florets.engines.messages import Sent
from florets.server_app.workers.client_side import ClientSide
from florets.task.task import Task

READY = b""
"""First thing that a worker sends."""


class WorkersFailed(RuntimeError):
    """The workers cannot work; the text says why and what to do."""


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


class Worker(ABC):
    """One worker, and what it has in hand.

    Parameters
    ----------
    number
        Its place in the pool, which whoever replaces it takes over.
    """

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

        Parameters
        ----------
        folders
            Data folders of nodes that have data of their own.
        side
            The ClientApp of this process, by which blocks are cut.

        Returns
        -------
        bool
            Whether each worker has the data of all clients at no cost; else each makes those of its own clients.
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
