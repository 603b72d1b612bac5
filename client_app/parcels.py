"""Parcels on a node: its place among the nodes, and its clients' answers to the messages of one parcel."""

import logging
from time import monotonic

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.caps import Limits
from florets.client_app.node import is_simulated, partition_id
from florets.task.node_config import CLIENTS, NUM_PARTITIONS, PARTITION_ID
from florets.task.wire import kinds
from florets.task.wire.flower import become_task
from florets.task.wire.parcels import Failure, pack_place, pack_replies, unpack

log = logging.getLogger("florets")


def opened(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer a parcel: each of its messages by itself, as `app` would answer it on a node of its own.

    A client that fails costs the others nothing. The question for the node's place is a parcel without messages.
    """
    items, hosting = unpack(message.content)
    if PARTITION_ID not in context.node_config:
        raise ValueError(f"clients_per_node={hosting.per_node}: this node has data of its own and hosts one client")
    place = partition_id(context)
    if message.metadata.message_type == kinds.HOSTED:
        nodes = int(context.node_config[NUM_PARTITIONS]) if is_simulated(context) else 0
        return Message(pack_place(place, nodes), reply_to=message)
    Limits(context.node_config).hold(CLIENTS, "clients on this node", len(items))
    if is_simulated(context):
        # Processes of Flower's simulation are none of its tasks, which alone may build messages.
        become_task(context.run_id, context.node_id, 0)
    begun = monotonic()
    replies: list[RecordDict | Failure] = []
    for item in items:
        left = message.metadata.ttl - (monotonic() - begun)
        try:
            inner = Message(item.content, context.node_id, item.kind, ttl=left, group_id=message.metadata.group_id)
            if item.client not in hosting.clients_of(place):
                raise ValueError(f"this node does not host client {item.client}")
            reply = app(inner, _context_of(item.client, hosting.num_clients, context))
            replies.append(Failure(reply.error.reason or "") if reply.has_error() else reply.content)
        except Exception as error:  # as in every Flower runtime, whatever a client raises is its reply alone
            log.debug("client %d of node %d failed", item.client, context.node_id, exc_info=True)
            replies.append(Failure(f"{type(error).__name__}: {error}"))
    return Message(pack_replies(replies), reply_to=message)


def _context_of(client: int, num_clients: int, context: Context) -> Context:
    config = {**context.node_config, PARTITION_ID: client}
    if NUM_PARTITIONS in config:
        config[NUM_PARTITIONS] = num_clients
    return Context(context.run_id, context.node_id, config, context.state, context.run_config, context.series_id)
