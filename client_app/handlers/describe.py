"""`query.describe`: what this node's data look like, so that all nodes can agree on columns and classes."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.task.wire.description import pack_description


def describe(client: Client) -> RecordDict:
    """Return the description of this node's data; see `florets.task.data.tables.description` for what leaves it.

    A node that sends no sums of its tests (`share-statistics`) sends none of its columns either.

    Raises
    ------
    ValueError
        If the node's data cannot be read, or its clients are simulated.
    """
    if not client.task.is_own:
        raise ValueError("only nodes with data of their own describe them")
    found = client.task.describe()
    return pack_description(client.key, found if client.shares_statistics else found.without_figures())
