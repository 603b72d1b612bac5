"""`train`: local training of one model."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.local_training import update
from florets.client_app.outgoing import reply


def train(client: Client) -> RecordDict:
    """Train the model that came and return it, or its gradient."""
    return reply(*update(client, client.states()[0]))
