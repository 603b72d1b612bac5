"""Client handlers of a strategy's own: local training on weighted samples, and some that go wrong."""

import torch
from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.local_training import trained
from florets.client_app.outgoing import packed, reply
from florets.task.training.objective import Objective
from florets.task.wire import kinds

called: list[str] = []


def weighted(client: Client) -> RecordDict:
    """Train the body of the model that came, on samples of the first class alone."""
    called.append(client.key)
    objective = Objective(
        weights=(client.data.y_train == client.number("class")).to(torch.float32),
        frozen=client.task.body_and_head(client.module)[1],
    )
    arrays, loss = trained(client, client.states()[0], objective=objective)
    return reply(packed(arrays), {kinds.TRAIN_LOSS: loss, kinds.NUM_EXAMPLES: client.num_examples})


def draws(client: Client) -> RecordDict:
    return reply(None, {"first": float(client.random().random()), "again": float(client.random().random())})


def nothing(client: Client) -> None:
    """Forget the reply."""


def of_two(client: Client, path: str) -> RecordDict:
    """Take more than a client."""
    return RecordDict()
