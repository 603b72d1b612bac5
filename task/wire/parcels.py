"""Parcels: one of Flower's messages that holds those for all clients of a simulated node.

A parcel's records are those of its messages, `<number>/<record>`, and `parcel`: the type of each message and the
client that it is for, and in the reply which of them failed and why. Records that several messages share are one
object, which Flower sends once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire.flower import filled
from florets.task.wire.records import MalformedMessage, Record

_PARCEL = "parcel"
_KINDS, _CLIENTS, _PER_NODE, _OF = "kinds", "clients", "per-node", "num-clients"
_FAILED, _REASONS, _PLACE, _NODES = "failed", "reasons", "place", "nodes"


@dataclass(frozen=True)
class Hosting:
    """How many clients each node of a run hosts at most, and how many there are in all."""

    per_node: int
    num_clients: int

    def clients_of(self, place: int) -> range:
        """Return the numbers of the clients that a node hosts, by its place among the nodes."""
        return range(place * self.per_node, min((place + 1) * self.per_node, self.num_clients))


@dataclass(frozen=True)
class Item:
    """A message of a parcel: its type, the number of its client, and its content."""

    kind: str
    client: int
    content: RecordDict


@dataclass(frozen=True)
class Failure:
    """Why a message of a parcel has no reply."""

    reason: str


def pack(items: Sequence[Item], hosting: Hosting) -> RecordDict:
    """Return the content of a parcel; without items it asks a node for its place."""
    about: dict[str, object] = {_PER_NODE: hosting.per_node, _OF: hosting.num_clients}
    if items:
        about |= {_KINDS: [item.kind for item in items], _CLIENTS: [item.client for item in items]}
    return _packed(about, {number: item.content for number, item in enumerate(items)})


def unpack(content: RecordDict) -> tuple[list[Item], Hosting]:
    """Return what `pack` was given; ValueError for all else."""
    about = _about(content)
    per_node, of = about.get(_PER_NODE, 0), about.get(_OF, 0)
    types, clients = about.get(_KINDS, []), about.get(_CLIENTS, [])
    numbers = [per_node, of, *clients] if isinstance(clients, list) else [None]
    if not all(type(number) is int for number in numbers) or not isinstance(types, list):
        raise ValueError(f"the message's {_PARCEL!r} does not say what it holds")
    parts = zip(types, clients, _contents(content, len(types)), strict=True)
    return [Item(str(kind), client, own) for kind, client, own in parts], Hosting(per_node, of)


def pack_replies(replies: Sequence[RecordDict | Failure]) -> RecordDict:
    """Return the reply to a parcel: those of its messages, in their order."""
    failed = {number: one.reason for number, one in enumerate(replies) if isinstance(one, Failure)}
    about: dict[str, object] = {_FAILED: list(failed), _REASONS: list(failed.values())} if failed else {}
    return _packed(about, {n: one for n, one in enumerate(replies) if isinstance(one, RecordDict)})


def read_replies(content: RecordDict, count: int) -> list[RecordDict | Failure]:
    """Return the replies to a parcel of `count` messages, from anywhere; MalformedMessage where it is none.

    What the replies hold is for their readers; a message without a reply has failed.
    """
    about = _about(content)
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


def pack_place(place: int, nodes: int) -> RecordDict:
    """Return a node's answer which one it is, and of how many simulated ones; 0: it is not simulated."""
    return _packed({_PLACE: place, _NODES: nodes}, {})


def read_place(content: RecordDict, hosting: Hosting) -> tuple[int, int]:
    """Return what `pack_place` was given, from anywhere: a place with clients, and a number of nodes."""
    about = _about(content)
    place, nodes = about.get(_PLACE), about.get(_NODES)
    if type(place) is not int or type(nodes) is not int or place < 0 or nodes < 0 or not hosting.clients_of(place):
        raise MalformedMessage("it does not say which clients it hosts, or hosts none")
    return place, nodes


def _about(content: RecordDict) -> Mapping[str, Any]:
    about = content.get(_PARCEL)
    if not isinstance(about, ConfigRecord):
        raise MalformedMessage(f"the message has no {_PARCEL!r}")
    return about


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
