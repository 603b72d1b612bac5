"""`LocalGrid`: Flower's Grid in this process. Messages reach the ClientApp by a plain function call."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.task.device import find_device
from florets.task.task import Task
from florets.task.training.vectorised import block_size
from florets.task.wire import flower, kinds

_RUN_ID = 1
_SERVER_NODE_ID = 1

InBlocks = Callable[[Sequence[tuple[Message, Context]], int], Iterator[list[int]]]
"""Yields the places of an exchange's messages in blocks of at most a number, which it has computed together."""

NodeConfig = dict[str, bool | int | float | str]

log = logging.getLogger("florets")


def as_flowers_process() -> None:
    """Let messages be built in this process, which is none of Flower's."""
    flower.become_task(_RUN_ID, _SERVER_NODE_ID, 0)


def answered(app: ClientApp, message: Message, context: Context) -> Message:
    """Return a client's reply to a message."""
    try:
        return app(message, context)
    # Whatever a client raises becomes its error reply, as in every Flower runtime; the run goes on.
    except Exception as error:
        log.debug("client of node %d failed", context.node_id, exc_info=True)
        return failed(message, f"{type(error).__name__}: {error}")


def failed(message: Message, reason: str, code: int = flower.CLIENT_APP_RAISED) -> Message:
    """Return the reply to a message whose client has failed, or does not exist."""
    return Message(Error(code, reason), reply_to=message)


class LocalGrid(Grid):
    """Serves `num_nodes` simulated nodes with one ClientApp, one after the other.

    A reply is computed when it is pulled: an exchange costs 0.03-0.3 ms a message on top of the clients' own work. A
    deadline cannot interrupt a client, and a message is delivered by reference: a client must not change it.
    Nodes 1 to `num_nodes` get partitions 0 to `num_nodes` - 1, and `node_configs` in addition. `in_blocks` computes
    the work of several clients together, where `block_size` is above 1 and the messages allow it. `adopt` lets the
    clients of this process work on a task that it is handed, which each process would else load itself.
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_nodes: int,
        node_configs: Sequence[NodeConfig] | None = None,
        in_blocks: InBlocks | None = None,
        adopt: Callable[[Task | None], None] | None = None,
    ) -> None:
        as_flowers_process()
        self._app = client_app
        self._adopt = adopt
        self.in_blocks = in_blocks
        self.takes_blocks = in_blocks is not None and getattr(client_app, "is_bare", True)
        """Whether clients' work may be computed together: mods of an app may change each message by itself."""
        self.block_size = 1
        """Most clients whose work is computed together; 1: each by itself."""
        self._run: Any = None
        self._message_ids = count(1)
        self._waiting: dict[str, Message] = {}
        # Node ids start after the server's own.
        self._contexts = {
            node + _SERVER_NODE_ID + 1: Context(
                run_id=_RUN_ID,
                node_id=node + _SERVER_NODE_ID + 1,
                node_config={
                    "partition-id": node,
                    "num-partitions": num_nodes,
                    kinds.ONE_PROCESS: True,
                    **(node_configs[node] if node_configs else {}),
                },
                state=RecordDict(),
                run_config={},
            )
            for node in range(num_nodes)
        }

    def prepare(self, config: Config, task: Task) -> Config:
        """Take a run's task and return what `choose_blocks` does; ConfigError where the engine cannot do that."""
        chosen = self.choose_blocks(config, task)
        self.share(task)
        return chosen

    def choose_blocks(self, config: Config, task: Task) -> Config:
        """Compute as many clients' work together as `batch_clients` says; return the configuration with the choice.

        It replaces `auto`: the results depend on it, and a resumed run must not choose again.
        """
        asked = config.batch_clients
        if not self.takes_blocks and asked not in ("off", "auto"):
            raise ConfigError(
                f"batch_clients={asked}: the ClientApp has mods, which handle each message by itself; leave it out."
            )
        if asked == "auto":
            asked = "off"
            if self.takes_blocks:
                asked = block_size(task.build_model(), find_device(config.device))
        self.block_size = 1 if asked == "off" else asked
        return replace(config, batch_clients="off" if self.block_size < 2 else self.block_size)

    def share(self, task: Task) -> None:
        """Let clients and server have one task, and so one data set in memory; before the first message."""
        # Nodes with data of their own have a task each. Those of an earlier run may hold files and code that have
        # changed since.
        if self._adopt is not None:
            self._adopt(None if task.is_own else task)

    def set_run(self, run: Any) -> None:
        """Set the run's information."""
        self._run = run

    @property
    def run(self) -> Any:
        """The run's information."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Build a message; `Message(...)` does the same."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return all node ids."""
        return list(self._contexts)

    def get_nodes(self) -> list[Any]:
        """Return all nodes; their node config's client-id is the name that they would be registered under."""
        return [
            flower.NodeInfo(node_id=node_id, name=str(context.node_config.get("client-id", "")))
            for node_id, context in self._contexts.items()
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Take messages for delivery and give each an id."""
        message_ids = []
        for message in messages:
            message_id = str(next(self._message_ids))
            # The id is private to the grid that sends the message, as in Flower's own grids.
            flower.set_message_id(message, message_id)
            self._waiting[message_id] = message
            message_ids.append(message_id)
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Deliver the messages with these ids, in the order in which they were sent, and return the replies."""
        messages = self._taken(message_ids)
        if self.in_blocks is None or self.block_size < 2:
            return [self._deliver(message) for message in messages]
        sent = [(m, context) for m in messages if (context := self._contexts.get(m.metadata.dst_node_id)) is not None]
        replies: dict[str, Message] = {}
        for block in self.in_blocks(sent, self.block_size):
            for message, context in map(sent.__getitem__, block):
                replies[message.metadata.message_id] = answered(self._app, message, context)
        return [replies.get(m.metadata.message_id) or self._deliver(m) for m in messages]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return all replies; `timeout` has no effect without processes."""
        return self.pull_messages(self.push_messages(messages))

    def _taken(self, message_ids: Iterable[str]) -> list[Message]:
        """Return those messages that wait for delivery, in the order in which they were sent; they wait no more."""
        return [self._waiting.pop(message_id) for message_id in sorted(self._waiting.keys() & message_ids, key=int)]

    def _deliver(self, message: Message) -> Message:
        context = self._contexts.get(message.metadata.dst_node_id)
        if context is None:
            return failed(message, "no such node", flower.NODE_UNAVAILABLE)
        return answered(self._app, message, context)
