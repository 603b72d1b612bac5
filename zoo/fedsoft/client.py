"""FedSoft's clients: training near another model, and the count of the samples that each model explains best."""

import numpy as np
from flwr.app import RecordDict

from florets import Update
from florets.client_app.client import Client
from florets.strategies.shared.client import trained_near
from florets.task.training.mixture import sample_losses
from florets.task.wire.codec import pack
from florets.zoo.fedsoft.messages import ClosestCounts


def train_anchored(client: Client) -> RecordDict:
    """Return the model that came after training near the other one, and its loss.

    Source: Ruan and Joe-Wong 2022 (FedSoft), the clients' proximal problem.
    """
    return pack(Update, **trained_near(client))


def closest(client: Client) -> RecordDict:
    """Count the training samples that each model explains best; of equal losses the first model's counts.

    Source: Ruan and Joe-Wong 2022 (FedSoft), estimation of the importance weights.
    """
    data = client.data
    losses = sample_losses(client.module, client.states(), data.x_train, data.y_train, client.loss)
    best = np.argmin(np.where(np.isnan(losses), np.inf, losses), axis=1)
    counts = np.bincount(best, minlength=losses.shape[1])
    return pack(ClosestCounts, counts=counts, num_examples=client.num_examples)
