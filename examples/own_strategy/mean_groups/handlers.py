"""Client handler of the strategy's own message: replies with the mean of the client's data."""

import torch
from flwr.app import RecordDict
from torch.nn.functional import one_hot

from florets.client_app.client import Client
from florets.client_app.outgoing import packed, reply
from florets.task.wire import kinds


def mean(client: Client) -> RecordDict:
    """Return the mean input of the training set, or how often each class occurs in it."""
    rows = client.data.x_train
    if client.config["compare"] == "labels":
        rows = one_hot(client.data.y_train, client.task.num_outputs)
    found = rows.flatten(1).to(torch.float32).mean(0)
    return reply(packed({"mean": found.cpu().numpy()}), {kinds.NUM_EXAMPLES: client.num_examples})
