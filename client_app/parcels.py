"""Parcels on a node: which clients it hosts, and their answers to the messages of one parcel.

A simulated node, or one with a `partition-id`, hosts as many parts of the data in turn as the run says. A node whose
config has `clients-in-folders = true` hosts a client for each folder, or table, in its data-dir. Any
other node is one client.
"""

import logging
from pathlib import Path
from time import monotonic

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.caps import Limits
from florets.client_app.client import is_simulated, partition_id
from florets.task.data.files import inside
from florets.task.data.tables.declaration import client_folders, name_of
from florets.task.node_config import CLIENTS, flag
from florets.task.wire import kinds
from florets.task.wire.parcels import Failure, Hosted, Hosting, pack_clients, pack_replies, unpack

log = logging.getLogger("florets")


def opened(app: ClientApp, message: Message, context: Context) -> Message:
    """Answer a parcel: each of its messages by itself, as `app` would answer it on a node of its own.

    A client that fails costs the others nothing. The question for the node's clients is a parcel without messages.
    """
    items, hosting = unpack(message.content)
    contexts = clients_of(context, hosting)
    if message.metadata.message_type == kinds.HOSTED:
        nodes = int(context.node_config["num-partitions"]) if is_simulated(context) else 0
        return Message(pack_clients(Hosted(list(contexts), nodes)), reply_to=message)
    begun = monotonic()
    replies: list[RecordDict | Failure] = []
    for item in items:
        left = message.metadata.ttl - (monotonic() - begun)
        try:
            inner = Message(item.content, context.node_id, item.kind, ttl=left, group_id=message.metadata.group_id)
            # By name: folders that come or go while the run is on change nobody else's data.
            client = item.client or next(iter(contexts), "")
            if client not in contexts:
                raise ValueError(f"this node hosts {len(contexts)} clients, and no client {client}")
            reply = app(inner, contexts[client])
            replies.append(Failure(reply.error.reason or "") if reply.has_error() else reply.content)
        except Exception as error:  # as in every Flower runtime, whatever a client raises is its reply alone
            log.debug("client %s of node %d failed", item.client, context.node_id, exc_info=True)
            replies.append(Failure(f"{type(error).__name__}: {error}"))
    return Message(pack_replies(replies, list(contexts) if _in_folders(context) else ()), reply_to=message)


def clients_of(context: Context, hosting: Hosting) -> dict[str, Context]:
    """Return the context of each client that a node hosts, by a name that is its own on the node.

    A node that is one client has no name for it, so that the client's is the node's.
    """
    node = context.node_config
    if hosting.per_node == 1:
        return {kinds.NO_KEY: context}
    if _in_folders(context):
        return _clients_in_folders(context)
    if "partition-id" not in node or not hosting.num_clients:
        return {kinds.NO_KEY: context}
    first = partition_id(context) * hosting.per_node
    Limits(node).hold(CLIENTS, "clients on this node", min(hosting.per_node, hosting.num_clients))
    of = {"num-partitions": hosting.num_clients} if "num-partitions" in node else {}
    return {
        str(number): _context(context, {**of, "partition-id": number})
        for number in range(first, min(first + hosting.per_node, hosting.num_clients))
    }


def _in_folders(context: Context) -> bool:
    return flag(context.node_config, kinds.CLIENTS_IN_FOLDERS)


def _clients_in_folders(context: Context) -> dict[str, Context]:
    node = context.node_config
    given, own = f"{kinds.CLIENTS_IN_FOLDERS}=true", f"{node['client-id']}/" if "client-id" in node else ""
    if "data-dir" not in node:
        raise ValueError(
            f"{given}: this node has no data-dir in its node config, whose folders are the clients; add it"
        )
    root = Path(str(node["data-dir"]))
    if not root.is_dir() or not (folders := client_folders(root)):
        raise ValueError(
            f"{given}: this node's data-dir is no folder that holds folders or tables; give each client one"
        )
    return {
        name_of(path): _context(context, {"data-dir": str(inside(root, path)), "client-id": own + name_of(path)})
        for path in folders
    }


def _context(context: Context, own: dict[str, str | int]) -> Context:
    config = {**context.node_config, **own}
    return Context(context.run_id, context.node_id, config, context.state, context.run_config, context.series_id)
