"""`WorkerGrid`: the in-process engine with worker processes, whose replies have the bits of `LocalGrid`'s."""

import time
from collections.abc import Iterable, Sequence

from flwr.app import Message

from florets.server_app.cpu_time import add_workers
from florets.server_app.local_grid import LocalGrid, NodeConfig
from florets.server_app.workers.client_side import LoadClientSide
from florets.server_app.workers.kept_models import KeptModels
from florets.server_app.workers.pool import Unit, WorkerPool
from florets.server_app.workers.shared_messages import Sent
from florets.task.shared_clients import SharedTask, share_clients
from florets.task.shared_file import SharedFile
from florets.task.task import Task

_UNITS = 16
"""Of an exchange, for each worker: few enough to cost little, many enough that all end at about one time."""
_MOST_MESSAGES = 32
"""Of a unit that is no block: as many replies are lost with a worker."""


class WorkerGrid(LocalGrid):
    """Serves simulated nodes with the ClientApp in several processes, which share the messages of an exchange.

    A reply depends on its message and the client's state alone, and both come from here: whichever worker answers,
    its bits are the same. Who does not answer before the next exchange begins has its worker ended and replaced.

    Parameters
    ----------
    load
        Brings the ClientApp; other processes import it by its name.
    num_nodes, node_configs
        See `LocalGrid`.
    workers
        Number of processes.
    """

    def __init__(
        self, load: LoadClientSide, num_nodes: int, node_configs: Sequence[NodeConfig] | None, workers: int
    ) -> None:
        self._side = load()
        super().__init__(self._side.app, num_nodes, node_configs, self._side.in_blocks)
        self._load, self._workers = load, workers
        self._file = SharedFile()
        self._pool: WorkerPool | None = None
        # Else each worker has the data of its own clients.
        self._has_shared_data = False
        self._kept = KeptModels()
        self._arrived: dict[str, Message] = {}

    def share(self, task: Task) -> None:
        """Hand the data of all clients to all workers, which would else load them; see `LocalGrid.share`."""
        # Data that change from round to round are made anew by whoever needs them.
        clients = None if task.is_own or task.drifts else share_clients(task, self._file)
        if clients is not None:
            self._has_shared_data = True
            # Blocks are cut here, by the sizes of the clients' data.
            self._side.adopt(SharedTask(clients, self._file))
        self._pool = WorkerPool(self._load, self._workers, self._file, clients)

    @property
    def pool(self) -> WorkerPool:
        """The worker processes, started when they are first needed."""
        if self._pool is None:
            self._pool = WorkerPool(self._load, self._workers, self._file, None)
        return self._pool

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out those messages that have not been yet, as one exchange, and return the replies that are there."""
        wanted = list(message_ids)
        if messages := self._taken(wanted):
            self._begin(messages)
        self.wait_for_replies(0.0)
        return [self._arrived.pop(message_id) for message_id in wanted if message_id in self._arrived]

    def wait_for_replies(self, seconds: float) -> None:
        """Wait until a reply comes, or for some seconds."""
        for reply in self.pool.arrived(seconds):
            self._arrived[reply.metadata.reply_to_message_id] = reply

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies that come in time, in the order of the messages."""
        waiting = self.push_messages(messages)
        replies: dict[str, Message] = {}
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while len(replies) < len(waiting) and (left := deadline - time.monotonic()) > 0:
            for reply in self.pull_messages([message_id for message_id in waiting if message_id not in replies]):
                replies[reply.metadata.reply_to_message_id] = reply
            if len(replies) < len(waiting):
                self.wait_for_replies(min(left, 1.0))
        return [replies[message_id] for message_id in waiting if message_id in replies]

    def close(self) -> None:
        """End the workers; nothing is left of what they shared."""
        if self._pool is not None:
            self._pool.close()
            add_workers(self._pool.cpu_seconds)
        if self._has_shared_data:
            self._side.adopt(None)
        self._file.close()

    def _begin(self, messages: Sequence[Message]) -> None:
        here = [message for message in messages if message.metadata.dst_node_id in self._contexts]
        # They say that there is no such node.
        gone = [self._deliver(message) for message in messages if message.metadata.dst_node_id not in self._contexts]
        self._arrived = {reply.metadata.reply_to_message_id: reply for reply in gone}
        sent = [(message, self._contexts[message.metadata.dst_node_id]) for message in self._kept.put_back(here)]
        self.pool.begin(self._units(sent))

    def _units(self, sent: Sent) -> list[Unit]:
        """Return the exchange's messages as they are handed out; blocks are those of `LocalGrid`."""
        alone, blocks = list(range(len(sent))), list[list[int]]()
        if self.block_size > 1:
            alone, blocks = self._side.cut_blocks(sent, self.block_size)
        units = [
            Unit([sent[place] for place in block], self.block_size, self._worker_of(sent, block[0]))
            for block in blocks
        ]
        by_worker: dict[int | None, list[int]] = {}
        for place in alone:
            by_worker.setdefault(self._worker_of(sent, place), []).append(place)
        size = max(1, min(_MOST_MESSAGES, len(sent) // (_UNITS * self._workers)))
        for worker, places in by_worker.items():
            for start in range(0, len(places), size):
                units.append(Unit([sent[place] for place in places[start : start + size]], 0, worker))
        return units

    def _worker_of(self, sent: Sent, place: int) -> int | None:
        return None if self._has_shared_data else sent[place][1].node_id % self._workers
