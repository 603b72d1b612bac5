"""Parcels on a node: its clients' answers to the messages of one parcel."""

import logging
from time import monotonic

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.caps import Limits
from florets.client_app.node import is_simulated
from florets.task.node_config import COLUMNS, NUM_PARTITIONS, PARTITION_ID
from florets.task.wire.flower import become_task
from florets.task.wire.parcels import pack_replies, unpack

log = logging.getLogger("florets")


def opened(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer a parcel: each of its messages by itself, as `app` would answer it on a node of its own.

    A client that fails costs the others nothing.
    """
    if PARTITION_ID not in context.node_config:
        raise ValueError("clients_per_node: this node has data of its own and hosts one client")
    items, num_clients = unpack(message.content)
    Limits(context.node_config).hold(COLUMNS, "clients on this node", len(items))
    if is_simulated(context):
        # Processes of Flower's simulation are none of its tasks, which alone may build messages.
        become_task(context.run_id, context.node_id, 0)
    begun = monotonic()
    replies: list[RecordDict | str] = []
    for item in items:
        left = message.metadata.ttl - (monotonic() - begun)
        try:
            inner = Message(item.content, context.node_id, item.kind, ttl=left, group_id=message.metadata.group_id)
            reply = app(inner, _context_of(item.client, num_clients, context))
            replies.append(reply.error.reason or "" if reply.has_error() else reply.content)
        except Exception as error:  # as in every Flower runtime, whatever a client raises is its reply alone
            log.debug("client %d of node %d failed", item.client, context.node_id, exc_info=True)
            replies.append(f"{type(error).__name__}: {error}")
    return Message(pack_replies(replies), reply_to=message)


def _context_of(client: int, num_clients: int, context: Context) -> Context:
    config = {**context.node_config, PARTITION_ID: client}
    if NUM_PARTITIONS in config:
        config[NUM_PARTITIONS] = num_clients
    return Context(context.run_id, context.node_id, config, context.state, context.run_config, context.series_id)
