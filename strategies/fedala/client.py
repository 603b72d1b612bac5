"""FedALA's clients: training from a client's own mixture of the global model and its upper layers."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.mixing import mixed
from florets.client_app.training import packed, trained
from florets.strategies.fedala.messages import MixedUpdate
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.replies import Update


def train_mixed(client: Client) -> RecordDict:
    """Return the model after local training, and the weights of the mixture that it began as, where there was one.

    A client that has no layers of its own yet trains the global model.

    Source: Zhang et al. 2023 (FedALA), Alg. 1: the clients' part.
    """
    n = client.num_examples
    if kinds.OWN not in client.content:
        arrays, loss = trained(client, client.states()[0])
        return pack(Update, values=arrays, train_loss=loss, num_examples=n)
    start, weights = mixed(client)
    mix = packed({name: value.numpy() for name, value in weights.items()})
    arrays, loss = trained(client, start)
    return pack(MixedUpdate, values=arrays, train_loss=loss, num_examples=n, mix=mix)
