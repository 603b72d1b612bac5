"""`ParcelGrid`: Flower's Grid, on which each node hosts several simulated clients, and gets one message for all."""

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import clean_reason, send
from florets.strategies.base.federation import WrongNodeCount
from florets.task.wire import MalformedMessage, kinds, parcels
from florets.task.wire.flower import CLIENT_APP_RAISED, NodeInfo, set_message_id

_SECONDS = 3600.0
"""Time to live of the question which clients a node hosts; the run itself waits for less."""

log = logging.getLogger("florets")


class ParcelGrid(Grid):
    """Shows each client as a node, and sends the messages of one exchange to one node as one.

    Strategies see no difference. A node replies once all of its clients have answered. A node that has not said which
    clients it hosts is not shown.

    Parameters
    ----------
    grid
        Flower's.
    hosting
        How many clients a node hosts, and how many there are.
    """

    def __init__(self, grid: Grid, hosting: parcels.Hosting) -> None:
        self._grid, self._hosting = grid, hosting
        self._message_ids = count(1)
        self._asked: dict[int, str] = {}
        """Id of the question that a node was asked, by node."""
        self._places: dict[int, int] = {}
        """Place of a node among the simulated ones, by node."""
        self._parcels: dict[str, list[Message]] = {}

    def get_node_ids(self) -> list[int]:
        """Return the ids of all clients whose nodes are online and have said which clients they host.

        Raises
        ------
        WrongNodeCount
            If a simulated node says that there are too few of them to host all clients.
        """
        online = list(self._grid.get_node_ids())
        self._ask(online)
        return [client + 1 for node in online if node in self._places for client in self._clients_of(node)]

    def _clients_of(self, node: int) -> range:
        return self._hosting.clients_of(self._places[node])

    def _ask(self, online: list[int]) -> None:
        """Ask nodes that are new for their places, and take those answers that have come."""
        self._asked = {node: asked for node, asked in self._asked.items() if node in online}
        new = [node for node in online if node not in self._asked]
        question = parcels.pack([], self._hosting)
        asked = [Message(question, node, kinds.HOSTED, ttl=_SECONDS, group_id="0") for node in new]
        pushed = zip(new, self._grid.push_messages(asked) if asked else [], strict=True)
        # Without an id nothing was sent: the node is asked again.
        self._asked |= {node: message_id for node, message_id in pushed if message_id}
        waiting = {asked: node for node, asked in self._asked.items() if node not in self._places}
        for reply in self._grid.pull_messages(list(waiting)) if waiting else []:
            node = waiting[reply.metadata.reply_to_message_id]
            try:
                if reply.has_error():
                    raise MalformedMessage(clean_reason(reply.error.reason or "no reason given"))
                place, nodes = parcels.read_place(reply.content, self._hosting)
            except MalformedMessage as problem:
                log.warning("node %d cannot take part: %s", node, problem)
                continue
            if nodes and nodes * self._hosting.per_node < self._hosting.num_clients and not self._places:
                raise WrongNodeCount(self._hosting.num_clients, nodes, self._hosting.per_node)
            if place in self._places.values():
                log.warning("node %d cannot take part: another node has its clients", node)
                continue
            self._places[node] = place

    def get_nodes(self) -> Iterable[Any]:
        """Return what is known of each client's node."""
        for node in self._grid.get_nodes():
            for client in self._clients_of(node.node_id) if node.node_id in self._places else ():
                name = f"{node.name}/{client}" if node.name else ""
                yield NodeInfo(node_id=client + 1, name=name, public_key=node.public_key)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send what goes to one node as one parcel."""
        hosts = {client + 1: node for node in self._places for client in self._clients_of(node)}
        sent, now = list(messages), time.time()
        # Nobody waits any more for replies to what has expired, which may hold large models.
        for parcel_id, (first, *_) in list(self._parcels.items()):
            if first.metadata.created_at + first.metadata.ttl < now:
                del self._parcels[parcel_id]
        groups: dict[int, list[Message]] = {}
        for message in sent:
            groups.setdefault(hosts[message.metadata.dst_node_id], []).append(message)
        whole = [self._parcel(node, group) for node, group in groups.items()]
        for parcel_id, group in zip(self._grid.push_messages(whole) if whole else [], groups.values(), strict=True):
            if parcel_id:
                self._parcels[parcel_id] = group
            for message in group:
                set_message_id(message, f"{parcel_id}/{next(self._message_ids)}" if parcel_id else "")
        return [message.metadata.message_id for message in sent]

    def _parcel(self, node: int, group: list[Message]) -> Message:
        about = group[0].metadata
        items = [parcels.Item(one.metadata.message_type, one.metadata.dst_node_id - 1, one.content) for one in group]
        return Message(parcels.pack(items, self._hosting), node, kinds.PARCEL, ttl=about.ttl, group_id=about.group_id)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there to these messages, which must be whole exchanges."""
        wanted = set(message_ids)
        due = [own for own, sent in self._parcels.items() if any(m.metadata.message_id in wanted for m in sent)]
        return [reply for whole in self._grid.pull_messages(due) for reply in self._replies(whole)] if due else []

    def _replies(self, whole: Message) -> Iterator[Message]:
        messages = self._parcels.pop(whole.metadata.reply_to_message_id, [])
        contents: list[RecordDict | parcels.Failure]
        code = whole.error.code if whole.has_error() else CLIENT_APP_RAISED
        try:
            if whole.has_error():
                raise MalformedMessage(whole.error.reason or "")
            contents = parcels.read_replies(whole.content, len(messages))
        except MalformedMessage as problem:
            contents = [parcels.Failure(str(problem))] * len(messages)
        for message, content in zip(messages, contents, strict=True):
            if isinstance(content, parcels.Failure):
                yield Message(Error(code=code, reason=content.reason), reply_to=message)
            else:
                yield Message(content, reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that come in time."""
        return send(self, list(messages), _SECONDS if timeout is None else timeout)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Build a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def set_run(self, run: Any) -> None:
        """Set the run's information."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run's information."""
        return self._grid.run
