"""Messages between server and clients: the only part of `task` that knows Flower.

`kinds` names messages and keys, `layout` turns a model into a flat vector, `bank` packs K models into one record,
`replies` reads what clients send, `size` counts bytes, `stability` is the rule that clients and server share.
"""

from florets.task.wire import bank, kinds, replies
from florets.task.wire.layout import Layout, MalformedMessage
from florets.task.wire.size import payload_bytes
from florets.task.wire.stability import is_stable

__all__ = ["Layout", "MalformedMessage", "bank", "is_stable", "kinds", "payload_bytes", "replies"]
