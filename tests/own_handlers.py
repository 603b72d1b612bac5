"""Client handlers of a strategy's own: local training on weighted samples, and some that go wrong."""

import torch
from flwr.app import MetricRecord, RecordDict

import florets

called: list[str] = []


@florets.handler
def weighted(client: florets.Client) -> RecordDict:
    """Train the body of the model that came, on samples of the first class alone."""
    called.append(client.key)
    objective = florets.Objective(
        weights=(client.data.y_train == client.config["class"]).to(torch.float32), frozen=client.layers()[1]
    )
    return client.reply(client.train(objective=objective))


def draws(client: florets.Client) -> RecordDict:
    found = {"first": client.random().random(), "again": client.random().random()}
    return RecordDict({"metrics": MetricRecord(found)})


def nothing(client: florets.Client) -> None:
    """Forget the reply."""
