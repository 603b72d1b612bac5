"""Parcels: one of Flower's messages that holds several, for the clients that one node hosts or for one client.

A parcel's records are those of its messages, `<number>/<record>`, and `parcel`: the type of each message and the
client of the node that it is for, and in the reply which of them failed and why. Records that several messages share
are one object, which Flower sends once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.flower import filled
from florets.task.wire.records import MalformedMessage, Record
from florets.task.wire.replies import key_problem

_PARCEL = "parcel"
_KINDS, _CLIENTS, _PER_NODE, _OF = "kinds", "clients", "per-node", "num-clients"
_FAILED, _REASONS, _NAMES, _NODES = "failed", "reasons", "names", "nodes"


@dataclass(frozen=True)
class Hosting:
    """How many clients each node of a run hosts at most, and how many there are in all; 0: not known."""

    per_node: int
    num_clients: int = 0


@dataclass(frozen=True)
class Item:
    """A message of a parcel: its type, the name of its client on the node ("": its only one), and its content."""

    kind: str
    client: str
    content: RecordDict


@dataclass(frozen=True)
class Failure:
    """Why a message of a parcel has no reply."""

    reason: str


@dataclass(frozen=True)
class Hosted:
    """What a node says of its clients: a name of each, and of how many simulated nodes it is one (0: it is none)."""

    names: list[str]
    num_nodes: int


def ask_clients(hosting: Hosting) -> RecordDict:
    """Return the content of the message that asks a node for its clients."""
    return RecordDict({_PARCEL: filled(ConfigRecord(), {_PER_NODE: hosting.per_node, _OF: hosting.num_clients})})


def pack(items: Sequence[Item], hosting: Hosting) -> RecordDict:
    """Return the content of a parcel."""
    about: dict[str, object] = {_KINDS: [item.kind for item in items], _CLIENTS: [item.client for item in items]}
    about |= {_PER_NODE: hosting.per_node, _OF: hosting.num_clients}
    return _packed(about, {number: item.content for number, item in enumerate(items)})


def unpack(content: RecordDict) -> tuple[list[Item], Hosting]:
    """Return what `pack` was given; of a message that only asks for clients no items. ValueError for all else."""
    about = content.get(_PARCEL)
    if not isinstance(about, ConfigRecord):
        raise ValueError(f"the message has no {_PARCEL!r}")
    per_node, of = about.get(_PER_NODE), about.get(_OF)
    types, clients = about.get(_KINDS, []), about.get(_CLIENTS, [])
    if not (
        isinstance(per_node, int) and isinstance(of, int) and isinstance(types, list) and isinstance(clients, list)
    ):
        raise ValueError(f"the message's {_PARCEL!r} does not say what it holds")
    parts = zip(types, clients, _contents(content, len(types)), strict=True)
    return [Item(str(kind), str(client), own) for kind, client, own in parts], Hosting(per_node, of)


def pack_replies(replies: Sequence[RecordDict | Failure], names: Sequence[str] = ()) -> RecordDict:
    """Return the reply to a parcel: those of its messages, in their order.

    `names` are those of the clients that the node hosts now, where they can change while it runs.
    """
    failed = {number: one.reason for number, one in enumerate(replies) if isinstance(one, Failure)}
    about: dict[str, object] = {_FAILED: list(failed), _REASONS: list(failed.values())} if failed else {}
    about |= {_NAMES: list(names)} if names else {}
    return _packed(about, {n: one for n, one in enumerate(replies) if isinstance(one, RecordDict)})


def read_replies(content: RecordDict, count: int) -> list[RecordDict | Failure]:
    """Return the replies to a parcel of `count` messages, from anywhere; MalformedMessage where it is none.

    What the replies hold is for their readers; a message without a reply has failed.
    """
    about = content.get(_PARCEL)
    if not isinstance(about, ConfigRecord):
        raise MalformedMessage(f"the reply has no {_PARCEL!r}")
    failed, reasons = about.get(_FAILED, []), about.get(_REASONS, [])
    if not (isinstance(failed, list) and isinstance(reasons, list) and len(failed) == len(reasons)):
        raise MalformedMessage(f"the reply's {_PARCEL!r} does not give a reason for each failure")
    why = {number: str(reason) for number, reason in zip(failed, reasons, strict=True)}
    contents = _contents(content, count)
    return [
        Failure(why.get(number, "its node sent no reply of it"))
        if number in why or not contents[number]
        else contents[number]
        for number in range(count)
    ]


def pack_clients(hosted: Hosted) -> RecordDict:
    """Return a node's reply to `ask_clients`."""
    named = {_NAMES: hosted.names} if hosted.names else {}
    return RecordDict({_PARCEL: filled(ConfigRecord(), {**named, _NODES: hosted.num_nodes})})


def read_clients(content: RecordDict, hosting: Hosting) -> Hosted:
    """Return what a node says of its clients, at most as many as it may host."""
    about = content.get(_PARCEL)
    nodes = about.get(_NODES) if isinstance(about, ConfigRecord) else None
    if type(nodes) is not int or nodes < 0:
        raise MalformedMessage("it does not say which clients it hosts")
    return Hosted(read_names(content, hosting), nodes)


def read_names(content: RecordDict, hosting: Hosting) -> list[str]:
    """Return the names of the clients that a node says it hosts, none where it says nothing of them."""
    about = content.get(_PARCEL)
    names = about.get(_NAMES, []) if isinstance(about, ConfigRecord) else []
    if not isinstance(names, list):
        raise MalformedMessage("it does not say which clients it hosts")
    if len(names) > hosting.per_node:
        raise MalformedMessage(
            f"it hosts {len(names)} clients, more than clients_per_node={hosting.per_node}; raise the key"
        )
    # A node that is one client has no name for it.
    unnamed = names == [kinds.NO_KEY]
    if len(set(names)) < len(names) or any(not isinstance(n, str) or (key_problem(n) and not unnamed) for n in names):
        raise MalformedMessage("the names of its clients are not different printable texts")
    return [str(name) for name in names]


def _packed(about: Mapping[str, object], contents: Mapping[int, RecordDict]) -> RecordDict:
    records: dict[str, Record] = {_PARCEL: filled(ConfigRecord(), about)}
    for number, content in contents.items():
        records |= {f"{number}/{name}": record for name, record in content.items()}
    return filled(RecordDict(), records)


def _contents(content: RecordDict, count: int) -> list[RecordDict]:
    """Return the contents of a parcel's messages; records of no message are left out."""
    parts: list[dict[str, Record]] = [{} for _ in range(count)]
    numbers = {str(number): number for number in range(count)}
    for name, record in content.items():
        number, _, own = name.partition("/")
        if own and number in numbers:
            parts[numbers[number]][own] = record
    return [filled(RecordDict(), part) for part in parts]
