"""A client's own mixture of the global model and its upper layers, for FedALA's training and tests."""

import torch
from torch import Tensor

from florets.client_app.client import Client
from florets.client_app.training import augmentation, sample_weights
from florets.task.randomness import Purpose
from florets.task.training.local_aggregation import WeightSettings, learned_weights, mixture
from florets.task.wire import kinds


def mixed(client: Client) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the model that this client starts from, and the weights of the mixture, learned on its training data.

    Where the message holds weights, they are trained for one more pass; else from 1 until they have converged.
    """
    shared, own = client.states()[0], client.states(kinds.OWN)[0]
    known = kinds.MIX in client.content
    start = client.states(kinds.MIX)[0] if known else {name: torch.ones(value.shape) for name, value in own.items()}
    training = client.training
    settings = WeightSettings(
        rate=client.number(kinds.MIX_RATE),
        batch_size=training.batch_size,
        fraction=client.number(kinds.MIX_FRACTION),
        tolerance=client.number(kinds.MIX_TOLERANCE),
        most_passes=1 if known else int(client.number(kinds.MIX_PASSES)),
    )
    weights = learned_weights(
        client.module,
        shared,
        own,
        start,
        client.data.x_train,
        client.data.y_train,
        client.loss,
        settings,
        client.random(Purpose.LOCAL_AGGREGATION),
        sample_weights(client),
        augmentation(client),
        training.precision,
    )
    return mixture(shared, own, weights), weights
