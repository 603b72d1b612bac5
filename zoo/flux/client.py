"""FLUX's clients: mean and spread of their features in one model."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.task.descriptors import describe, projection
from florets.task.training.features import features
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.flux.messages import Descriptor


def descriptor(client: Client) -> RecordDict:
    """Return the descriptor of the training data; without class labels every class is absent.

    Source: Fenoglio et al. 2025 (FLUX), the client's descriptor extractor.
    """
    client.module.load_state_dict(client.states()[0])
    found = features(client.module, client.data.x_train, client.task.spec.head_layers)
    labels = client.data.y_train.cpu().numpy() if client.loss == "cross_entropy" else None
    directions = projection(
        found.shape[1], int(client.number(kinds.DIMENSIONS)), int(client.number(kinds.PROJECTION_SEED))
    )
    rows = describe(found, labels, int(client.number(kinds.CLASSES)), directions)
    return pack(Descriptor, rows=rows, num_examples=client.num_examples)
