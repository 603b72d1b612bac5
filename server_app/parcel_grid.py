"""`ParcelGrid`: Flower's Grid, on which each node hosts several simulated clients, and gets one message for all."""

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import send
from florets.task.wire import MalformedMessage, kinds, parcels
from florets.task.wire.flower import CLIENT_APP_RAISED, NodeInfo, set_message_id


class ParcelGrid(Grid):
    """Shows each client as a node, and sends the messages of one exchange to one node as one.

    Strategies see no difference. A node can host any of the simulated clients: each gets the next `per_node` of
    `num_clients`, or those of a node that has gone. It replies once all of its clients have answered.
    """

    def __init__(self, grid: Grid, per_node: int, num_clients: int) -> None:
        self._grid, self._per_node, self._num_clients = grid, per_node, num_clients
        self._message_ids = count(1)
        self._hosts: dict[int, int] = {}
        """Node by the place of its clients."""
        self._parcels: dict[str, list[Message]] = {}

    def get_node_ids(self) -> list[int]:
        """Return the ids of all clients whose nodes are online."""
        online = list(self._grid.get_node_ids())
        new = [node for node in online if node not in self._hosts.values()]
        free = [p for p in range(-(-self._num_clients // self._per_node)) if self._hosts.get(p) not in online]
        self._hosts |= dict(zip(free, new, strict=False))
        return [
            client + 1 for place, node in self._hosts.items() if node in online for client in self._clients(place)
        ]

    def _clients(self, place: int) -> range:
        return range(place * self._per_node, min((place + 1) * self._per_node, self._num_clients))

    def get_nodes(self) -> Iterable[Any]:
        """Return what is known of each client's node."""
        places = {node: place for place, node in self._hosts.items()}
        for node in self._grid.get_nodes():
            for client in self._clients(places[node.node_id]) if node.node_id in places else ():
                name = f"{node.name}/{client}" if node.name else ""
                yield NodeInfo(node_id=client + 1, name=name, public_key=node.public_key)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send what goes to one node as one parcel."""
        sent, now = list(messages), time.time()
        # Nobody waits any more for replies to what has expired, which may hold large models.
        for parcel_id, (first, *_) in list(self._parcels.items()):
            if first.metadata.created_at + first.metadata.ttl < now:
                del self._parcels[parcel_id]
        groups: dict[int, list[Message]] = {}
        for message in sent:
            groups.setdefault(self._hosts[(message.metadata.dst_node_id - 1) // self._per_node], []).append(message)
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
        content = parcels.pack(items, self._num_clients)
        return Message(content, node, kinds.PARCEL, ttl=about.ttl, group_id=about.group_id)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there to these messages, which must be whole exchanges."""
        wanted = set(message_ids)
        due = [own for own, sent in self._parcels.items() if any(m.metadata.message_id in wanted for m in sent)]
        return [reply for whole in self._grid.pull_messages(due) for reply in self._replies(whole)] if due else []

    def _replies(self, whole: Message) -> Iterator[Message]:
        messages = self._parcels.pop(whole.metadata.reply_to_message_id, [])
        code, found = CLIENT_APP_RAISED, list[RecordDict | str]()
        if whole.has_error():
            code, found = whole.error.code, [whole.error.reason or ""] * len(messages)
        else:
            try:
                found = parcels.read_replies(whole.content, len(messages))
            except MalformedMessage as problem:
                found = [str(problem)] * len(messages)
        for message, one in zip(messages, found, strict=True):
            yield Message(Error(code, one) if isinstance(one, str) else one, reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that come in time."""
        return send(self, list(messages), float("inf") if timeout is None else timeout)

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
