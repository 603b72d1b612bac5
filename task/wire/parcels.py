"""Parcels: a message that holds those for all clients of a simulated node; shared records are sent once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire.flower import filled
from florets.task.wire.records import MalformedMessage, Record

_PARCEL, _KINDS, _CLIENTS, _OF = "parcel", "kinds", "clients", "num-clients"


class Item(NamedTuple):
    """A message of a parcel: its type, the number of its client, and its content."""

    kind: str
    client: int
    content: RecordDict


def pack(items: Sequence[Item], num_clients: int) -> RecordDict:
    """Return the content of a parcel, in a federation of so many clients."""
    about = {_KINDS: [item.kind for item in items], _CLIENTS: [item.client for item in items], _OF: num_clients}
    return _packed(about, enumerate(item.content for item in items))


def unpack(content: RecordDict) -> tuple[list[Item], int]:
    """Return what `pack` was given."""
    about: Any = content[_PARCEL]
    contents = _contents(content, len(about[_KINDS]))
    return list(map(Item, about[_KINDS], about[_CLIENTS], contents)), int(about[_OF])


def pack_replies(replies: Sequence[RecordDict | str]) -> RecordDict:
    """Return the reply to a parcel: those of its messages, in their order, or the reason for which there is none."""
    failed = {str(place): reason for place, reason in enumerate(replies) if isinstance(reason, str)}
    return _packed(failed, ((place, one) for place, one in enumerate(replies) if isinstance(one, RecordDict)))


def read_replies(content: RecordDict, count: int) -> list[RecordDict | str]:
    """Return what `pack_replies` was given, from anywhere; what the replies hold is for their readers."""
    failed = content.get(_PARCEL)
    if not isinstance(failed, ConfigRecord):
        raise MalformedMessage(f"the message has no {_PARCEL!r}")
    contents = _contents(content, count)
    return [own or str(failed.get(str(place), "its node sent no reply of it")) for place, own in enumerate(contents)]


def _packed(about: Mapping[str, object], contents: Iterable[tuple[int, RecordDict]]) -> RecordDict:
    records: dict[str, Record] = {_PARCEL: filled(ConfigRecord(), about)}
    for place, content in contents:
        records |= {f"{place}/{name}": record for name, record in content.items()}
    return filled(RecordDict(), records)


def _contents(content: RecordDict, count: int) -> list[RecordDict]:
    """Return the contents of a parcel's messages; records of no message are left out."""
    parts: dict[str, dict[str, Record]] = {str(place): {} for place in range(count)}
    for name, record in content.items():
        place, _, own = name.partition("/")
        if own and place in parts:
            parts[place][own] = record
    return [filled(RecordDict(), part) for part in parts.values()]
