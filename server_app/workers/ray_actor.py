"""`RayActor`: a worker on a node of a Ray cluster; the class that Ray starts there."""

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from florets.server_app.local_grid import as_flowers_process
from florets.server_app.workers.client_side import ClientSide, LoadClientSide
from florets.server_app.workers.shared_messages import MessageReader
from florets.server_app.workers.worker import answered_unit
from florets.strategies.base.loop import seldom_collected
from florets.task import given
from florets.task.shared_file import Place
from florets.task.task import Task, TaskSpec
from florets.task.threads import one_thread_for_good


@dataclass(frozen=True)
class Started:
    """What an actor says first.

    Parameters
    ----------
    where
        Its node and process, for a reader.
    problem
        Why it cannot work; empty: it can.
    """

    where: str
    problem: str = ""


class RayActor:
    """Answers the messages that it is handed."""

    def __init__(self) -> None:
        self._side: ClientSide | None = None
        self._objects = RayObjects()
        self._reader = MessageReader(self._objects)
        self._while_it_lives = ExitStack()

    def start(self, load: LoadClientSide, task: str, folders: Sequence[str], files: Mapping[str, bytes]) -> Started:
        """Load the ClientApp and the data.

        Parameters
        ----------
        load
            Brings the ClientApp.
        task
            The `TaskSpec`, as JSON; empty where each node has data of its own.
        folders
            Those of such nodes, which must be on this machine too.
        files
            Objects that were given in Python, see `florets.task.given`.
        """
        where = f"{platform.node()}, process {os.getpid()}"
        one_thread_for_good()
        as_flowers_process()
        given.adopt(files)
        self._side = load()
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
        """Answer messages of an exchange.

        Parameters
        ----------
        messages
            As `MessageWriter.pickled` gives them.
        records
            References to the objects with the records that several messages hold, by their place's start.
        block
            As in `Unit`.

        Returns
        -------
        bytes
            As `answered_unit`.
        """
        assert self._side is not None, "it has been started"
        self._objects.references = records
        return answered_unit(self._side, self._reader.unpickled(exchange, messages), block)


class RayObjects:
    """Ray's objects in the form of shared memory; a node holds each of them once for all its actors."""

    def __init__(self) -> None:
        self.references: Mapping[int, Any] = {}

    def read(self, place: Place) -> memoryview:
        """Return an object's bytes."""
        import ray

        return memoryview(ray.get(self.references[place.start]))
