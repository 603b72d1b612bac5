"""FlexCFL's clients: how many samples of each class they have, for migration."""

import torch
from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.task.wire.codec import pack
from florets.zoo.flexcfl.messages import LabelCounts


def labels(client: Client) -> RecordDict:
    """Return the number of training samples of each class."""
    if client.loss != "cross_entropy":
        raise ValueError(f"labels can only be counted in a classification, not with task.loss={client.loss}")
    counts = torch.bincount(client.data.y_train, minlength=client.task.num_outputs)
    return pack(LabelCounts, counts=counts)
