"""Training on the data of all clients of a simulation together."""

import torch
from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.training import values_of
from florets.task.randomness import Purpose
from florets.task.training.loop import train
from florets.task.training.modules import load
from florets.task.wire.codec import pack
from florets.task.wire.replies import Update


def train_pooled(client: Client) -> RecordDict:
    """Return the model after training on every client's samples; the number of examples is this client's own."""
    if not client.is_simulated:
        raise ValueError(
            "strategy=centralised trains on the data of all clients together, which a real node does not have; use "
            "strategy=fedavg"
        )
    task, device = client.task, client.data.x_train.device
    parts = [task.client(number, client.server_round) for number in range(task.num_clients)]
    x, y = (torch.cat([getattr(part, name) for part in parts]).to(device) for name in ("x_train", "y_train"))
    load(client.module, client.states()[0])
    rng = client.random(Purpose.LOCAL_TRAINING)
    mean = train(client.module, x, y, client.loss, client.training, rng, client.objective)
    return pack(Update, values=values_of(client.module), train_loss=mean, num_examples=client.num_examples)
