"""`WorkerGrid`: the in-process engine with workers, whose replies have the bits of `LocalGrid`'s."""

import copy
import pickle
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid, NodeConfig
from florets.engines.workers import LoadClientSide, Sent, Start, Unit, Workers, WorkersFailed
from florets.strategies.base.exchange import send
from florets.task.shared_file import SharedFile, SharedTask, share_clients
from florets.task.task import Task
from florets.task.wire import bank, kinds


class KeptModels:
    """The last models that clients were asked to keep.

    In shared memory sending them again costs next to nothing, and any worker can answer, be it started meanwhile.
    """

    def __init__(self) -> None:
        self._token = ""
        self._record = ArrayRecord()
        self._models: dict[int, ArrayRecord] = {}

    def put_back(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages, with their model those that name one of the kept ones; the others as they are."""
        return [self._completed(message) for message in messages]

    def _completed(self, message: Message) -> Message:
        config, arrays = message.content.get(kinds.CONFIG), message.content.get(kinds.ARRAYS)
        if not isinstance(config, ConfigRecord) or not isinstance(token := config.get(kinds.BANK), str):
            return message
        if isinstance(arrays, ArrayRecord):
            if token != self._token:
                self._token, self._record, self._models = token, arrays, {}
            return message
        index = config.get(kinds.MODEL_INDEX)
        if token != self._token or not isinstance(index, int):
            return message
        if index not in self._models:
            self._models[index] = bank.model(self._record, index)
        plain, content = config.copy(), message.content.copy()
        del plain[kinds.BANK], plain[kinds.MODEL_INDEX]
        content.update({kinds.CONFIG: plain, kinds.ARRAYS: self._models[index]})
        # The sender counts the bytes of what it sent: its own message stays as it is.
        completed = copy.copy(message)
        completed.content = content
        return completed


_MOST_MESSAGES = 32
"""Of a unit that is no block: as many replies are lost with a worker."""
_UNITS = 16
"""Of an exchange, for each worker: few enough to cost little, many enough that all end at about one time."""


class WorkerGrid(LocalGrid):
    """Serves simulated nodes with the ClientApp in several workers, which share the messages of an exchange.

    A reply depends on its message and the client's state alone, and both come from here: whichever worker answers,
    its bits are the same. Who does not answer before the next exchange begins has its worker ended and replaced.
    `files` are objects that were given in Python.
    """

    def __init__(
        self,
        load: LoadClientSide,
        num_nodes: int,
        node_configs: Sequence[NodeConfig] | None,
        workers: int,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._side = load()
        super().__init__(self._side.app, num_nodes, node_configs, self._side.in_blocks)
        self._count = workers
        self._start = Start(load, SharedFile(), dict(files))
        self._workers: Workers | None = None
        self._kept = KeptModels()
        self._arrived: dict[str, Message] = {}

    def prepare(self, config: Config, task: Task) -> Config:
        """Take a run's task, as `LocalGrid.prepare`; workers that cannot start are the configuration's problem."""
        try:
            return super().prepare(config, task)
        except WorkersFailed as error:
            raise ConfigError(f"{error}.") from None

    def share(self, task: Task) -> None:
        """Hand the data of a task's clients to the workers, and start them."""
        # Nodes with data of their own load them; data that change from round to round, and those of very many
        # clients, are made by whoever needs them.
        if not (task.is_own or task.drifts or task.counts_are_known):
            file = self._start.file
            clients = share_clients(task, file)
            self._start = replace(self._start, clients=file.append(pickle.dumps(clients, protocol=5)))
            # Blocks are cut here, by the sizes of the clients' data.
            self._side.adopt(SharedTask(clients, file))
        self._workers = self.workers

    @property
    def workers(self) -> Workers:
        """The workers, started when they are first needed."""
        if self._workers is None:
            self._workers = Workers(self._count, self._start)
        return self._workers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out those messages that have not been yet, as one exchange, and return the replies that are there."""
        wanted = message_ids if isinstance(message_ids, Set) else set(message_ids)
        # Asked anew after each of a hundred answers: only what has come since is looked at, not all that is awaited.
        if self._waiting and (messages := self._taken(wanted)):
            self._begin(messages)
        self.wait_for_replies(0.0)
        there = [message_id for message_id in self._arrived if message_id in wanted]
        return [self._arrived.pop(message_id) for message_id in there]

    def wait_for_replies(self, seconds: float) -> None:
        """Wait until a reply comes, or for some seconds."""
        for reply in self.workers.arrived(seconds):
            self._arrived[reply.metadata.reply_to_message_id] = reply

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies that come in time, in the order of the messages."""
        replies = send(self, list(messages), float("inf") if timeout is None else timeout)
        return sorted(replies, key=lambda reply: int(reply.metadata.reply_to_message_id))

    def close(self) -> None:
        """End the workers; nothing is left of what they shared."""
        try:
            if self._workers is not None:
                self._workers.close()
        finally:
            self._side.adopt(None)
            self._start.file.close()

    def _begin(self, messages: Sequence[Message]) -> None:
        self._arrived = {}
        here, contexts = list[Message](), list[Context]()
        for message in messages:
            context = self._contexts.get(message.metadata.dst_node_id)
            if context is None:
                # Its reply says that there is no such node.
                self._arrived[message.metadata.message_id] = self._deliver(message)
            else:
                here.append(message)
                contexts.append(context)
        self.workers.begin(self._units(list(zip(self._kept.put_back(here), contexts, strict=True))))

    def _units(self, sent: Sent) -> list[Unit]:
        """Return the exchange's messages as they are handed out; blocks are those of `LocalGrid`."""
        alone, blocks = list(range(len(sent))), list[list[int]]()
        if self.block_size > 1:
            alone, blocks = self._side.cut_blocks(sent, self.block_size)
        # A block's clients are of several workers: all have an equal number of blocks, and mostly the same ones.
        units = [
            Unit([sent[place] for place in block], self.block_size, self._worker_of(number))
            for number, block in enumerate(blocks)
        ]
        by_worker: dict[int | None, list[int]] = {}
        for place in alone:
            by_worker.setdefault(self._worker_of(sent[place][1].node_id), []).append(place)
        size = max(1, min(_MOST_MESSAGES, len(sent) // (_UNITS * self._count)))
        for worker, places in by_worker.items():
            for start in range(0, len(places), size):
                units.append(Unit([sent[place] for place in places[start : start + size]], 0, worker))
        return units

    def _worker_of(self, number: int) -> int | None:
        return None if self._start.clients is not None else number % self._count
