"""`ParcelGrid`: Flower's Grid, on which one node may host several clients, and gets their messages as one parcel."""

import logging
import math
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import count
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Patience, clean_reason, send
from florets.strategies.base.federation import WrongNodeCount
from florets.task.wire import MalformedMessage, kinds, parcels
from florets.task.wire.flower import CLIENT_APP_RAISED, NodeInfo, set_message_id

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
        How long nodes have to say it: after that the others' clients are shown, and a silent node is refused until it
        answers.
    """

    def __init__(self, grid: Grid, hosting: parcels.Hosting, seconds: float = 60.0) -> None:
        self._grid, self._hosting = grid, hosting
        self._seconds, self._deadline = seconds, math.inf
        self._numbers, self._message_ids = count(1), count(1)
        self._clients: dict[int, dict[int, str]] = {}
        """Name of each client that a node hosts, by node and the id that the client is known under here."""
        self._refused: dict[int, str] = {}
        """Why a node cannot take part; until it goes offline it is shown as a client that fails for that reason."""
        self._asked: dict[str, int] = {}
        self._until: dict[int, float] = {}
        self._num_nodes: dict[int, int] = {}
        """Of how many simulated nodes a node says it is one."""
        self._agreed: int | None = None
        """What most nodes say of it, of those that say enough for all clients."""
        self._parcels: dict[str, tuple[int, list[Message]]] = {}
        self._failed: dict[str, Message] = {}
        """Replies to messages that were not sent, by the messages' ids."""
        self._begun = False

    def get_node_ids(self) -> list[int]:
        """Return the ids of all clients whose nodes are online and have said which clients they host.

        At first there are none until each node that is online has answered, or has had its time and another one has
        clients. A node that cannot take part is one client, so that it is known and named as any client that fails.

        Raises
        ------
        WrongNodeCount
            If no node says that enough nodes are simulated to host all clients.
        """
        nodes = list(self._grid.get_node_ids())
        if self._hosting.per_node == 1:
            return nodes
        self._forget_offline(set(nodes))
        self._ask([node for node in nodes if node not in self._clients])
        now = time.monotonic()
        silent = [node for node in nodes if node not in self._clients]
        has_clients = any(clients for node, clients in self._clients.items() if node not in self._refused)
        if not self._begun and silent and (now < self._deadline or not has_clients):
            return []
        self._agreed = self._count() if self._agreed is None else self._agreed
        for node, said in list(self._num_nodes.items()):
            if self._agreed not in (None, said):
                self._refuse(node, f"it says that it is one of {said} simulated nodes, the others say {self._agreed}")
        for node in silent:
            # At the start the others' clients come first: a node that is slow costs nobody the start.
            if self._begun and self._until[node] <= now:
                self._refuse(node, "it has not said in time which clients it hosts")
        self._begun = self._begun or has_clients
        return [client for node in nodes for client in self._clients.get(node, {})]

    def _forget_offline(self, online: Container[int]) -> None:
        """Forget what nodes that are offline were refused for, or asked: they are asked again when they come back."""
        for node in [node for node in self._refused if node not in online]:
            del self._refused[node], self._clients[node]
        self._asked = {message_id: node for message_id, node in self._asked.items() if node in online}
        self._until = {node: until for node, until in self._until.items() if node in online}

    def _count(self) -> int | None:
        clients, per_node = self._hosting.num_clients, self._hosting.per_node
        if not clients or not self._num_nodes:
            return None
        # Real nodes say 0.
        enough = Counter(said for said in self._num_nodes.values() if said == 0 or said * per_node >= clients)
        if not enough:
            raise WrongNodeCount(clients, max(self._num_nodes.values()), per_node)
        return enough.most_common(1)[0][0]

    def _ask(self, nodes: list[int]) -> None:
        new = [node for node in nodes if node not in self._asked.values()]
        if new and self._deadline == math.inf:
            self._deadline = time.monotonic() + self._seconds
        question = parcels.ask_clients(self._hosting)
        asked = [Message(question.copy(), node, kinds.HOSTED, ttl=_SECONDS, group_id="0") for node in new]
        for node, message_id in zip(new, self._grid.push_messages(asked) if asked else [], strict=True):
            self._until.setdefault(node, time.monotonic() + self._seconds)
            if message_id:
                self._asked[message_id] = node
        for reply in self._grid.pull_messages(list(self._asked)) if self._asked else []:
            if reply.metadata.reply_to_message_id not in self._asked:
                continue  # its node has answered already
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            try:
                if reply.has_error():
                    raise MalformedMessage(clean_reason(reply.error.reason or "no reason given"))
                hosted = parcels.read_clients(reply.content, self._hosting)
            except MalformedMessage as problem:
                self._refuse(node, str(problem))
                continue
            self._refused.pop(node, None)
            self._clients[node], self._num_nodes[node] = {}, hosted.num_nodes
            self._host(node, hosted.names)

    def _refuse(self, node: int, reason: str) -> None:
        self._num_nodes.pop(node, None)
        self._refused[node], self._clients[node] = reason, {next(self._numbers): kinds.NO_KEY}

    def _host(self, node: int, names: Iterable[str]) -> None:
        """Take over which clients a node hosts now; those that it hosted before keep their ids."""
        known = {name: client for client, name in self._clients[node].items()}
        self._clients[node] = {known.get(name) or next(self._numbers): name for name in names}

    def get_nodes(self) -> Iterable[Any]:
        """Return what is known of each client's node; a registered name is the node's and the client's own."""
        if self._hosting.per_node == 1:
            return self._grid.get_nodes()
        return list(self._infos())

    def _infos(self) -> Iterator[NodeInfo]:
        for node in self._grid.get_nodes():
            called = node.name or (f"node {node.node_id}" if node.node_id in self._refused else "")
            for client, name in self._clients.get(node.node_id, {}).items():
                own = called if name == kinds.NO_KEY or not called else f"{called}/{name}"
                yield NodeInfo(node_id=client, name=own, public_key=node.public_key)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send what goes to one node as one parcel, a single message to a node of one client as it is."""
        places = {client: (node, name) for node, clients in self._clients.items() for client, name in clients.items()}
        sent, now = list(messages), time.time()
        # Nobody waits any more for replies to what has expired, which may hold large models.
        for parcel_id, (_, (first, *_)) in list(self._parcels.items()):
            if first.metadata.created_at + first.metadata.ttl < now:
                del self._parcels[parcel_id]
        groups: dict[int, list[tuple[str, Message]]] = {}
        for message in sent:
            own = message.metadata.dst_node_id
            node, name = places.get(own, (own, ""))
            if self._hosting.per_node > 1 and (own not in places or node in self._refused):
                self._fail(message, self._refused.get(node, "its node does not host it any more"))
            else:
                groups.setdefault(node, []).append((name, message))
        whole = [self._parcel(node, group) for node, group in groups.items()]
        pushed = self._grid.push_messages(whole) if whole else []
        for parcel, (node, group), parcel_id in zip(whole, groups.items(), pushed, strict=True):
            self._parcels[parcel_id] = node, [message for _, message in group]
            for _, message in group:
                if message is not parcel:
                    own_id = f"{parcel_id}/{next(self._message_ids)}" if parcel_id else ""
                    set_message_id(message, own_id)
        self._parcels.pop("", None)
        return [message.metadata.message_id for message in sent]

    def _fail(self, message: Message, reason: str) -> None:
        own_id = f"failed/{next(self._message_ids)}"
        set_message_id(message, own_id)
        self._failed[own_id] = Message(Error(code=CLIENT_APP_RAISED, reason=reason), reply_to=message)

    def _parcel(self, node: int, group: list[tuple[str, Message]]) -> Message:
        about = group[0][1].metadata
        if len(group) == self._hosting.per_node == 1:
            return group[0][1]
        items = [parcels.Item(message.metadata.message_type, name, message.content) for name, message in group]
        return Message(parcels.pack(items, self._hosting), node, kinds.PARCEL, ttl=about.ttl, group_id=about.group_id)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there to these messages, which must be whole exchanges."""
        wanted = set(message_ids)
        failed = [self._failed.pop(own) for own in wanted & self._failed.keys()]
        due = [own for own, (_, sent) in self._parcels.items() if any(m.metadata.message_id in wanted for m in sent)]
        came = [reply for whole in self._grid.pull_messages(due) for reply in self._replies(whole)] if due else []
        return failed + came

    def _replies(self, whole: Message) -> Iterator[Message]:
        parcel_id = whole.metadata.reply_to_message_id
        node, messages = self._parcels.pop(parcel_id, (0, []))
        if [message.metadata.message_id for message in messages] == [parcel_id]:
            yield whole
            return
        contents: list[RecordDict | parcels.Failure] = []
        code = CLIENT_APP_RAISED
        if whole.has_error():
            code = whole.error.code
            contents = [parcels.Failure(whole.error.reason or "")] * len(messages)
        else:
            try:
                contents = [*parcels.read_replies(whole.content, len(messages))]
                self._look_for_changes(node, whole.content)
            except MalformedMessage as problem:
                contents = [parcels.Failure(str(problem))] * len(messages)
        for message, content in zip(messages, contents, strict=True):
            if isinstance(content, parcels.Failure):
                yield Message(Error(code=code, reason=content.reason), reply_to=message)
            else:
                yield Message(content, reply_to=message)

    def _look_for_changes(self, node: int, content: RecordDict) -> None:
        """Take over which clients a node hosts by now: folders may have come or gone, with or without a restart."""
        try:
            names = parcels.read_names(content, self._hosting)
        except MalformedMessage as problem:
            log.warning("node %d: its new clients cannot take part: %s", node, problem)
            return
        if node in self._clients and names and set(names) != set(self._clients[node].values()):
            self._host(node, names)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that come in time."""
        return send(self, list(messages), Patience(_SECONDS if timeout is None else timeout))

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
