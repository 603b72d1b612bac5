"""Messages between server and clients: the only part of `task` that knows Flower.

`kinds` names messages and keys, `codec` packs and reads messages that are dataclasses, `replies` are those of any
algorithm, `records` fills Flower's records and makes flat vectors of models, `bank` packs K models into one record.
"""

from florets.task.wire import bank, kinds
from florets.task.wire.codec import pack, read
from florets.task.wire.records import Layout, MalformedMessage, payload_bytes

__all__ = ["Layout", "MalformedMessage", "bank", "kinds", "pack", "payload_bytes", "read"]
