"""Flower's messages, filled at once: its constructor takes longer than reading or writing what a message holds.

The fields are those that ``Message(...)`` fills, which checks each argument of each message; here a message type is
checked once. Nothing else knows them.
"""

import time
from functools import lru_cache
from typing import Any

from flwr.app import Message, Metadata, RecordDict

# The sender of a new message: `Message(...)` asks it as well.
from flwr.supercore.task_identity import TaskIdentity


def new_message(content: RecordDict, node_id: int, kind: str, ttl: float, group_id: str) -> Message:
    """Return ``Message(content, node_id, kind, ttl=ttl, group_id=group_id)``.

    Parameters
    ----------
    ttl
        Seconds, above 0.

    Raises
    ------
    ValueError
        If Flower takes no message of such a type.
    """
    _check(kind)
    return _filled(
        content,
        {
            "_run_id": TaskIdentity.run_id,
            "_message_id": "",
            "_src_node_id": TaskIdentity.node_id,
            "_dst_node_id": node_id,
            "_src_task_id": TaskIdentity.task_id,
            "_dst_task_id": None,
            "_reply_to_message_id": "",
            "_group_id": group_id,
            "_created_at": time.time(),
            "_ttl": ttl,
            "_message_type": kind,
            "_delivered_at": "",
        },
    )


def reply_message(content: RecordDict, message: Message) -> Message:
    """Return ``Message(content, reply_to=message)``: it lives as long as the message that it answers."""
    sent, now = vars(message.metadata), time.time()
    return _filled(
        content,
        {
            "_run_id": sent["_run_id"],
            "_message_id": "",
            "_src_node_id": sent["_dst_node_id"],
            "_dst_node_id": sent["_src_node_id"],
            "_src_task_id": sent["_dst_task_id"],
            "_dst_task_id": sent["_src_task_id"],
            "_reply_to_message_id": sent["_message_id"],
            "_group_id": sent["_group_id"],
            "_created_at": now,
            "_ttl": sent["_created_at"] + sent["_ttl"] - now,
            "_message_type": sent["_message_type"],
            "_delivered_at": "",
        },
    )


def _filled(content: RecordDict, fields: dict[str, Any]) -> Message:
    metadata = Metadata.__new__(Metadata)
    metadata.__dict__.update(fields)
    message = Message.__new__(Message)
    message.__dict__.update(_metadata=metadata, _content=content, _error=None)
    return message


@lru_cache(maxsize=64)
def _check(kind: str) -> None:
    Message(RecordDict(), 0, kind)
