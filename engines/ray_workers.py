"""`RayBackend`: workers that are actors on the nodes of a Ray cluster."""

import logging
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.app import Message

from florets.engines.messages import MessageReader, MessageWriter
from florets.engines.pool import READY, Backend, ClientSide, LoadClientSide, Unit, Worker
from florets.engines.processes import answered_unit, started_side
from florets.task.device import seldom_collected
from florets.task.shared_file import Place
from florets.task.task import Task, TaskSpec


@dataclass(frozen=True)
class Started:
    """What an actor says first: its node and process, for a reader, and why it cannot work, if it cannot."""

    where: str
    problem: str = ""


class RayActor:
    """Answers the messages that it is handed."""

    def __init__(self) -> None:
        self._side: ClientSide | None = None
        self._references: Mapping[int, Any] = {}
        self._reader = MessageReader(self._object)
        self._while_it_lives = ExitStack()

    def start(self, load: LoadClientSide, task: str, folders: Sequence[str], files: Mapping[str, bytes]) -> Started:
        """Load the ClientApp and the data.

        `task` is the `TaskSpec` as JSON, empty where nodes have data of their own; `folders` are those of such nodes,
        which must be on this machine too. `files` are objects that were given in Python, see `florets.task.given`.
        """
        where = f"{platform.node()}, process {os.getpid()}"
        self._side = started_side(load, files)
        if missing := [folder for folder in folders if not Path(folder).is_dir()]:
            return Started(where, f"the folder {missing[0]} does not exist there")
        if task:
            own = Task(TaskSpec.from_json(task))
            try:
                own.data  # noqa: B018 - it is loaded
            except (OSError, ValueError) as error:
                return Started(where, str(error))
            self._side.adopt(own)
        self._while_it_lives.enter_context(seldom_collected())
        return Started(where)

    def answer(self, exchange: int, messages: bytes, records: Mapping[int, Any], block: int) -> bytes:
        """Answer messages of an exchange, as `MessageWriter.pickled` gives them; see `answered_unit`.

        `records` are references to the objects with the records that several messages hold, by their place's start.
        """
        assert self._side is not None, "it has been started"
        self._references = records
        return answered_unit(self._side, self._reader.unpickled(exchange, messages), block)

    def _object(self, place: Place) -> memoryview:
        """Return the bytes of one of Ray's objects; a node holds each of them once for all its actors."""
        import ray

        return memoryview(ray.get(self._references[place.start]))


log = logging.getLogger("florets")

Ask = Callable[[Any, Unit], Any]
"""Hands a unit to an actor, and returns the reference to its answers."""


class RayBackend(Backend):
    """Actors of one CPU each, on whichever nodes have one to spare; Ray is connected.

    The records that several messages of an exchange hold, such as all models, are put into Ray's memory once: a node
    fetches them once, whatever the number of its actors. What one message alone holds goes with it. `data_dir` is the
    folder that error texts name, `files` are objects that were given in Python.
    """

    # A call of an actor costs milliseconds.
    units = 6

    def __init__(
        self,
        load: LoadClientSide,
        start_seconds: float,
        data_dir: str,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        import ray

        self.start_seconds = start_seconds
        self._load, self._data_dir, self._files = load, data_dir, dict(files)
        self._task, self._folders = "", list[str]()
        self._objects = _Objects()
        self._writer = MessageWriter(self._objects)
        self._exchange = 0
        # Who starts them again is the pool, which gives their clients error replies.
        self._actors = ray.remote(RayActor).options(
            num_cpus=1,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            # Bits depend on the number of threads.
            runtime_env={"env_vars": {"PYTHONPATH": _own_paths(), "OMP_NUM_THREADS": "1"}},
        )

    def share(self, task: Task, folders: Sequence[str], side: ClientSide) -> bool:
        """Tell the actors the task: each loads its data on its own node."""
        self._folders = list(folders)
        if not task.is_own:
            self._task = task.spec.to_json()
            side.adopt(task)
        return False

    def start(self, number: int) -> "RayWorker":
        """Ask Ray for an actor, which starts as soon as a node has a CPU for it."""
        actor = self._actors.remote()
        return RayWorker(
            number, actor, actor.start.remote(self._load, self._task, self._folders, self._files), self._ask
        )

    def begin(self, messages: Iterable[Message]) -> None:
        """Begin an exchange; Ray forgets the objects of the last one."""
        self._exchange += 1
        self._writer.begin(messages)

    def wait(self, workers: Sequence[Worker], seconds: float) -> Sequence[Worker]:
        """Wait for the first of what the actors were asked for."""
        import ray

        by_coming = {
            worker.coming: worker for worker in workers if isinstance(worker, RayWorker) and worker.coming is not None
        }
        if not by_coming:
            return []
        first, others = ray.wait(list(by_coming), num_returns=1, timeout=seconds)
        more = ray.wait(others, num_returns=len(others), timeout=0)[0] if first and others else []
        return [by_coming[reference] for reference in (*first, *more)]

    def why_lost(self, worker: Worker) -> str:
        """Return why the clients of an actor that has ended do not answer."""
        return f"its {worker.name} ended ({worker.ending})"

    def cannot_start(self, ending: str) -> str:
        """Return what to tell where actors cannot start."""
        return (
            f"engine=ray: actors cannot work: {ending.rstrip('.')}. Every node of the cluster needs this version of "
            f"florets, and data_dir={self._data_dir} with the data"
        )

    def close(self) -> None:
        """Forget the objects."""
        self._objects.shorten(0)

    def _ask(self, actor: Any, unit: Unit) -> Any:
        # Before the references are listed: pickling puts further objects into Ray's memory.
        messages = self._writer.pickled(unit.sent)
        return actor.answer.remote(self._exchange, messages, self._objects.references(), unit.block)


class RayWorker(Worker):
    """One actor, and what it was asked for."""

    def __init__(self, number: int, actor: Any, coming: Any, ask: Ask) -> None:
        super().__init__(number)
        self._actor, self._ask = actor, ask
        self.coming: Any = coming
        """Reference to what will come from it; None: nothing will."""
        self._where = ""
        self._ending = ""

    @property
    def name(self) -> str:
        """The actor, for a reader."""
        return f"Ray actor {self.number} ({self._where})" if self._where else f"Ray actor {self.number}"

    @property
    def ending(self) -> str:
        """How it ended, for a reader."""
        return self._ending

    def send(self, unit: Unit) -> bool:
        """Send a unit; that the actor has ended shows when its answers are waited for."""
        self.coming = self._ask(self._actor, unit)
        return True

    def read(self) -> bytes | None:
        """Return what has come from the actor, None where it has ended."""
        import ray

        coming, self.coming = self.coming, None
        try:
            reply = ray.get(coming)
        # Of the actor, its process or its node: Ray's, or what the actor raised.
        except Exception as error:
            self._ending = _reason(error)
            log.debug("%s ended", self.name, exc_info=error)
            return None
        if isinstance(reply, bytes):
            return reply
        self._where = reply.where
        if reply.problem:
            self._ending = f"on {reply.where}: {reply.problem}"
            return None
        return READY

    def kill(self) -> None:
        """End the actor, and with it its process."""
        import ray

        self.coming = None
        if ray.is_initialized():
            ray.kill(self._actor)


class _Objects:
    """Ray's objects in the form of shared memory: each place is an object."""

    def __init__(self) -> None:
        self._references: list[Any] = []

    @property
    def end(self) -> int:
        """Number of objects."""
        return len(self._references)

    def append(self, data: bytes | memoryview) -> Place:
        """Put bytes into the memory of this node."""
        import ray

        # An array is read without a copy.
        self._references.append(ray.put(np.frombuffer(data, np.uint8)))
        return Place(len(self._references) - 1, len(data))

    def shorten(self, end: int) -> None:
        """Forget all from `end` on: Ray does so once no actor reads them."""
        del self._references[end:]

    def references(self) -> dict[int, Any]:
        """Return the references by place."""
        return dict(enumerate(self._references))


def _own_paths() -> str:
    """Return the folders, but for Python's own, from which this process imports: the actors' may be elsewhere."""
    installed = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = [path for path in map(Path.absolute, map(Path, sys.path)) if path.is_dir()]
    own = [str(path) for path in paths if not any(path.is_relative_to(folder) for folder in installed)]
    return os.pathsep.join([*own, "${PYTHONPATH}"])


def _reason(error: Exception) -> str:
    """Return the last line of Ray's page-long account, or what its kind says."""
    text = str(error)
    if "node has died" in text or "node was terminated" in text:
        return "its node is gone"
    # Ray does not know yet which: it takes a node for lost some seconds later.
    if type(error).__name__ == "ActorUnavailableError":
        return "its process or its node is gone"
    if type(error).__name__ == "OutOfMemoryError" or "out of memory" in text.lower():
        return "out of memory"
    if type(error).__name__ == "ActorDiedError" and "creation task" not in text:
        return "killed, or ended by a client"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
