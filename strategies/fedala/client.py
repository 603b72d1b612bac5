"""`train.mixed`: a client trains from its own mixture of the global model and its upper layers, for FedALA."""

from flwr.app import ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import packed, reply
from florets.client_app.mixing import mixed
from florets.client_app.training import trained
from florets.task.wire import kinds


def train_mixed(client: Client) -> RecordDict:
    """Return the model after local training, and the weights of the mixture that it began as, where there was one.

    A client that has no layers of its own yet trains the global model.

    Source: Zhang et al. 2023 (FedALA), Alg. 1: the clients' part.
    """
    start, others = client.states()[0], dict[str, ArrayRecord]()
    if kinds.OWN in client.content:
        start, weights = mixed(client)
        others[kinds.MIX] = packed({name: value.numpy() for name, value in weights.items()})
    arrays, loss = trained(client, start)
    return reply(packed(arrays), {kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: client.num_examples}, **others)
