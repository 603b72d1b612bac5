"""The exchange before the first round: nodes with data of their own describe them."""

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Patience, Request, exchange
from florets.strategies.base.federation import Federation, FederationError, client_key
from florets.task.data.tables.description import Description
from florets.task.wire import kinds
from florets.task.wire.description import read_description
from florets.task.wire.records import new_message, record_dict


def describe_sites(
    grid: Grid, settings: ConfigRecord, start_timeout: float, min_clients: int | None
) -> dict[str, Description]:
    """Return each site's description of its data, by client key.

    Parameters
    ----------
    settings
        The message's config, with the task.
    start_timeout
        Seconds to wait for the nodes, and again for their replies.
    min_clients
        Nodes to wait for; None: whichever are online.

    Raises
    ------
    FederationError
        If no site describes its data.
    """
    nodes = Federation(None, start_timeout, min_clients=min_clients).wait_for_nodes(grid)
    infos = {node.node_id: node for node in grid.get_nodes()}
    names = {node: getattr(infos.get(node), "name", "") for node in nodes}
    node_of = {f"{name} (node {node})" if name else f"node {node}": node for node, name in names.items()}
    requests = [
        Request(
            name, new_message(record_dict({kinds.CONFIG: settings.copy()}), node, kinds.DESCRIBE, start_timeout, "0")
        )
        for name, node in node_of.items()
    ]
    replies = exchange(
        grid, requests, lambda _, content: read_description(content), Patience(start_timeout), warn=False
    )
    found: dict[str, Description] = {}
    # Of two nodes with one key the one that is registered under it holds it, else the one with the lower node id.
    for name, (told, description) in sorted(
        replies.ok, key=lambda one: (not names[node_of[one[0]]], node_of[one[0]])
    ):
        info = infos.get(node_of[name])
        key = client_key(node_of[name], told, names[node_of[name]], getattr(info, "public_key", b""))
        found.setdefault(key, description)
    if not found:
        raise FederationError(f"no client could start: {replies.failures()}")
    # The others repeat their reason when they introduce themselves.
    return dict(sorted(found.items()))
