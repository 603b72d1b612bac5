"""`ReplicaGrid`: a federation in which a few clients compute, and the others repeat their replies.

A replica has the data of the client that represents it, so that what it repeats is what it would have said itself:
the server's side of a run is the real one, message for message, and any algorithm can be planned.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict

from florets.engines.local_grid import LocalGrid, NodeConfig
from florets.engines.pool import ClientSide
from florets.server_app.plan.memory import ProcessMemory
from florets.task.task import Task
from florets.task.wire import kinds, payload_bytes

MOST_COMPUTED = 16
"""About so many clients compute: enough that they show as many groups as an algorithm may look for."""
_LEAST_TIMED = 8
"""So many messages of an exchange are computed at least: their mean time is that of one."""
_MOST_VARIANTS = 4
"""Of messages to a client and its replicas that differ in their models, so many are computed."""

Like = tuple[Hashable, ...]


def representatives(task: Task) -> list[int]:
    """Return for each client the one whose data it is given here: of its own true cluster, and of about its size.

    Of each cluster's clients, sorted by the number of their samples, some at equal distances compute.
    """
    clusters = np.array([task.cluster_of(number) for number in range(task.num_clients)])
    sizes = np.array([task.num_examples_of(number) for number in range(task.num_clients)])
    found = np.arange(task.num_clients)
    known = np.unique(clusters)
    for cluster in known:
        members = np.flatnonzero(clusters == cluster)
        members = members[np.argsort(sizes[members], kind="stable")]
        parts = np.array_split(members, min(len(members), -(-MOST_COMPUTED // len(known))))
        for part in parts:
            found[part] = part[len(part) // 2]
    return [int(number) for number in found]


def representative_nodes(count: int) -> list[int]:
    """Return for each node with data of its own the one whose folder it reads here.

    The middle one of each of some equal runs of nodes: folders are sorted by their names, and thus often by site.
    """
    parts = np.array_split(np.arange(count), min(count, MOST_COMPUTED))
    return [int(part[len(part) // 2]) for part in parts for _ in part]


@dataclass
class Exchange:
    """One exchange, as it would be if every client had computed its own reply.

    Attributes
    ----------
    kinds
        Kinds of its messages, sorted.
    messages, down, up
        Messages to clients, and bytes of these and of the replies.
    client_seconds
        The clients' work, one after the other.
    """

    kinds: tuple[str, ...]
    messages: int
    down: int
    up: int
    client_seconds: float


@dataclass
class Seen:
    """What the grid has seen: exchanges since they were last taken, and the largest messages and needs of all.

    Attributes
    ----------
    up_at_once
        Most bytes of the replies that one exchange brings, without those that were computed here.
    down_at_once, reply
        Largest message and largest reply.
    asked
        Clients that were asked for something besides their introduction.
    growth
        Most memory that one client's work took beside its data; None where the system does not tell.
    seconds
        Wall time within exchanges, of the real work and of the repeating.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    up_at_once: int = 0
    down_at_once: int = 0
    reply: int = 0
    asked: set[int] = field(default_factory=set)
    growth: int | None = None
    seconds: float = 0.0


class ReplicaGrid(LocalGrid):
    """Serves simulated nodes of which only some compute their replies.

    Parameters
    ----------
    side
        The ClientApp.
    node_configs
        Of each node; it says whose data the node has.
    representatives
        For each node, from 0, the one that computes for it.
    memory
        Measures what a client needs.
    """

    def __init__(
        self,
        side: ClientSide,
        node_configs: Sequence[NodeConfig],
        representatives: Sequence[int],
        memory: ProcessMemory,
    ) -> None:
        super().__init__(side.app, len(node_configs), node_configs, side.in_blocks, side.adopt)
        self._representatives = dict(zip(self._contexts, representatives, strict=True))
        self._memory = memory
        self._measured: set[str] = set()
        self.seen = Seen()

    def take_exchanges(self) -> list[Exchange]:
        """Return the exchanges since the last call."""
        taken, self.seen.exchanges = self.seen.exchanges, []
        return taken

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Deliver some of these messages, and answer the others with the replies to those that are like them."""
        start = perf_counter()
        messages = self._taken(message_ids)
        if not messages:
            return []
        if all(message.metadata.message_type == kinds.HELLO for message in messages):
            replies, seconds = self._computed(messages)
        else:
            self._measure(messages)
            replies, seconds = self._repeated(messages)
        self._note(messages, replies, seconds)
        self.seen.seconds += perf_counter() - start
        return replies

    def _computed(self, messages: Sequence[Message]) -> tuple[list[Message], float]:
        """Return the replies to messages that are all computed, and the seconds that it took."""
        start = perf_counter()
        for message in messages:
            self._waiting[message.metadata.message_id] = message
        replies = super().pull_messages([message.metadata.message_id for message in messages])
        return replies, perf_counter() - start

    def _repeated(self, messages: Sequence[Message]) -> tuple[list[Message], float]:
        likes = [self._like(message) for message in messages]
        chosen, answer = _choose(likes, self.block_size if self.in_blocks else 1)
        replies, seconds = self._computed([messages[place] for place in chosen])
        at = {place: number for number, place in enumerate(chosen)}
        uploads = [payload_bytes(reply.content) if reply.has_content() else 0 for reply in replies]
        self.seen.up_at_once = max(self.seen.up_at_once, sum(uploads[at[place]] for place in answer) - sum(uploads))
        found = [
            replies[at[place]] if place == number else _again(replies[at[place]], messages[number])
            for number, place in enumerate(answer)
        ]
        return found, seconds / len(chosen) * len(messages)

    def _like(self, message: Message) -> tuple[Like, Like]:
        """Return what messages have in common whose replies are alike, and those whose replies have one size."""
        records, shapes, settings = [], [], []
        for name, record in message.content.items():
            if isinstance(record, ArrayRecord):
                records.append((name, id(record)))
                shapes.append((name, sum(len(array.data) for array in record.values())))
            elif isinstance(record, ConfigRecord):
                for key, value in record.items():
                    if isinstance(value, list):
                        shapes.append((key, len(value)))
                    elif key != kinds.CLIENT_NUMBER:
                        settings.append((key, value))
        node, kind = self._representatives[message.metadata.dst_node_id], message.metadata.message_type
        shape = (node, kind, *shapes, *(key for key, _ in settings))
        return (shape, *records, *settings), shape

    def _measure(self, messages: Sequence[Message]) -> None:
        """See what memory one client takes for a kind of message that is new."""
        message = messages[0]
        if message.metadata.message_type in self._measured:
            return
        self._measured.add(message.metadata.message_type)
        context = self._contexts.get(message.metadata.dst_node_id)
        before = copy.deepcopy(context.state) if context is not None else RecordDict()
        _, growth = self._memory.growth(lambda: self._deliver(message))
        if context is not None:
            # The message is answered once more with the others, by a client that has not seen it.
            context.state = before
        if growth is not None:
            self.seen.growth = max(self.seen.growth or 0, growth)

    def _note(self, messages: Sequence[Message], replies: Sequence[Message], seconds: float) -> None:
        seen = self.seen
        down = [payload_bytes(message.content) for message in messages]
        up = [payload_bytes(reply.content) if reply.has_content() else 0 for reply in replies]
        asked = tuple(sorted({message.metadata.message_type for message in messages}))
        seen.exchanges.append(Exchange(asked, len(messages), sum(down), sum(up), seconds))
        seen.down_at_once, seen.reply = max([seen.down_at_once, *down]), max([seen.reply, *up])
        if asked != (kinds.HELLO,):
            seen.asked.update(message.metadata.dst_node_id for message in messages)


def _choose(likes: Sequence[tuple[Like, Like]], block_size: int) -> tuple[list[int], list[int]]:
    """Return the places of the messages that are computed, and for each message that of the one that answers it."""
    by_like: dict[Like, int] = {}
    variants: dict[Like, list[int]] = {}
    answer = []
    for place, (like, shape) in enumerate(likes):
        if like not in by_like:
            known = variants.setdefault(shape, [])
            if len(known) < _MOST_VARIANTS:
                known.append(place)
                by_like[like] = place
            else:
                by_like[like] = known[len(by_like) % _MOST_VARIANTS]
        answer.append(by_like[like])
    chosen = set(answer)
    # A block costs less a client than one alone: the time is that of whole blocks.
    for place in range(len(answer)):
        if len(chosen) >= max(_LEAST_TIMED, block_size):
            break
        answer[place] = place
        chosen.add(place)
    return sorted(chosen), answer


def _again(reply: Message, message: Message) -> Message:
    """Return a reply as the reply to another message."""
    if not reply.has_content():
        return Message(Error(code=reply.error.code, reason=reply.error.reason), reply_to=message)
    return Message(RecordDict(dict(reply.content)), reply_to=message)
