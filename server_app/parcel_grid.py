"""`ParcelGrid`: Flower's Grid, on which one node may host several clients, and gets their messages as one parcel."""

import logging
import math
import time
from collections.abc import Iterable, Iterator
from itertools import count

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Patience, clean_reason, send
from florets.strategies.base.federation import WrongNodeCount
from florets.task.wire import MalformedMessage, kinds
from florets.task.wire.flower import CLIENT_APP_RAISED, NodeInfo, Run, set_metadata
from florets.task.wire.parcels import Failure, Hosting, Item, ask_clients, pack, read_clients, read_replies
from florets.task.wire.records import new_message, reply_message

_SECONDS = 3600.0
"""Time to live of the question which clients a node hosts; the run itself waits for less."""

log = logging.getLogger("florets")


class ParcelGrid(Grid):
    """Shows each client as a node, and sends the messages of one exchange to one node as one.

    Strategies see no difference. A node replies once all of its clients have answered.

    Parameters
    ----------
    grid
        Flower's.
    hosting
        How many clients a node hosts at most. With 1 nodes are not asked which clients they host.
    seconds
        How long, from the first look on, all nodes have to say it before the others' clients are shown.
    """

    def __init__(self, grid: Grid, hosting: Hosting, seconds: float = 60.0) -> None:
        self._grid, self._hosting = grid, hosting
        self._seconds, self._deadline = seconds, math.inf
        self._numbers, self._message_ids = count(1), count(1)
        self._clients: dict[int, dict[int, str]] = {}
        """Name of each client that a node hosts, by node and the id that the client is known under here."""
        self._asked: dict[str, int] = {}
        self._refused: set[int] = set()
        self._parcels: dict[str, list[Message]] = {}
        self._begun = False

    def get_node_ids(self) -> list[int]:
        """Return the ids of all clients whose nodes are online and have said which clients they host.

        At first there are none until each node that is online has answered, or has had its time.
        """
        nodes = list(self._grid.get_node_ids())
        if self._hosting.per_node == 1:
            return nodes
        self._refused &= set(nodes)
        self._ask([n for n in nodes if n not in self._clients and n not in self._refused])
        in_time = time.monotonic() < self._deadline
        if not self._begun and in_time and not self._refused.issuperset(n for n in nodes if n not in self._clients):
            return []
        found = [client for node in nodes for client in self._clients.get(node, {})]
        self._begun = self._begun or bool(found)
        return found

    def _ask(self, nodes: list[int]) -> None:
        new = [node for node in nodes if node not in self._asked.values()]
        if new and self._deadline == math.inf:
            self._deadline = time.monotonic() + self._seconds
        asked = [new_message(ask_clients(self._hosting), node, kinds.HOSTED, _SECONDS, "0") for node in new]
        for node, message_id in zip(new, self._grid.push_messages(asked) if asked else [], strict=True):
            if message_id:
                self._asked[message_id] = node
        for reply in self._grid.pull_messages(list(self._asked)) if self._asked else []:
            if reply.metadata.reply_to_message_id not in self._asked:
                continue  # its node has answered already
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            try:
                if reply.has_error():
                    raise MalformedMessage(clean_reason(reply.error.reason or "no reason given"))
                hosted = read_clients(reply.content, self._hosting)
            except MalformedMessage as problem:
                # It is asked again once it has been offline.
                called = next(
                    (info.name for info in self._grid.get_nodes() if info.node_id == node and info.name), node
                )
                log.warning("node %s cannot take part: %s", called, problem)
                self._refused.add(node)
                continue
            clients, per_node = self._hosting.num_clients, self._hosting.per_node
            if 0 < hosted.num_nodes * per_node < clients:
                raise WrongNodeCount(clients, hosted.num_nodes, per_node)
            self._clients[node] = {next(self._numbers): name for name in hosted.names}

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what is known of each client's node; a registered name is the node's and the client's own."""
        if self._hosting.per_node == 1:
            return self._grid.get_nodes()
        return list(self._infos())

    def _infos(self) -> Iterator[NodeInfo]:
        for node in self._grid.get_nodes():
            clients = self._clients.get(node.node_id, {})
            for client, name in clients.items():
                own = node.name if len(clients) == 1 or not node.name else f"{node.name}/{name}"
                yield NodeInfo(node_id=client, name=own, public_key=node.public_key)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send what goes to one node as one parcel, a single message to a node of one client as it is."""
        places = {client: (node, name) for node, clients in self._clients.items() for client, name in clients.items()}
        sent, now = list(messages), time.time()
        # Nobody waits any more for replies to what has expired, which may hold large models.
        for parcel_id, (first, *_) in list(self._parcels.items()):
            if first.metadata.created_at + first.metadata.ttl < now:
                del self._parcels[parcel_id]
        groups: dict[int, list[tuple[str, Message]]] = {}
        for message in sent:
            own = message.metadata.dst_node_id
            node, name = places.get(own, (own, ""))
            groups.setdefault(node, []).append((name, message))
        whole = [self._parcel(node, group) for node, group in groups.items()]
        for parcel, group, parcel_id in zip(whole, groups.values(), self._grid.push_messages(whole), strict=True):
            self._parcels[parcel_id] = [message for _, message in group]
            for _, message in group:
                if message is not parcel:
                    own_id = f"{parcel_id}/{next(self._message_ids)}" if parcel_id else ""
                    set_metadata(message, message_id=own_id)
        self._parcels.pop("", None)
        return [message.metadata.message_id for message in sent]

    def _parcel(self, node: int, group: list[tuple[str, Message]]) -> Message:
        about = group[0][1].metadata
        if len(group) == self._hosting.per_node == 1:
            return group[0][1]
        items = [Item(message.metadata.message_type, name, message.content) for name, message in group]
        return new_message(pack(items, self._hosting), node, kinds.PARCEL, about.ttl, about.group_id)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there to these messages, which must be whole exchanges."""
        wanted = set(message_ids)
        due = [own for own, parcel in self._parcels.items() if any(m.metadata.message_id in wanted for m in parcel)]
        return [reply for whole in self._grid.pull_messages(due) for reply in self._replies(whole)] if due else []

    def _replies(self, whole: Message) -> Iterator[Message]:
        parcel_id = whole.metadata.reply_to_message_id
        messages = self._parcels.pop(parcel_id, [])
        if [message.metadata.message_id for message in messages] == [parcel_id]:
            yield whole
            return
        contents: list[RecordDict | Failure] = []
        code = CLIENT_APP_RAISED
        if whole.has_error():
            code = whole.error.code
            contents = [Failure(whole.error.reason or "")] * len(messages)
        else:
            try:
                contents = [*read_replies(whole.content, len(messages))]
            except MalformedMessage as problem:
                contents = [Failure(str(problem))] * len(messages)
        for message, content in zip(messages, contents, strict=True):
            if isinstance(content, Failure):
                yield Message(Error(code=code, reason=content.reason), reply_to=message)
            else:
                yield reply_message(content, message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that come in time."""
        return send(self, list(messages), Patience(_SECONDS if timeout is None else timeout))

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Build a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def set_run(self, run: Run) -> None:
        """Set the run's information."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run's information."""
        return self._grid.run
