"""`train.soft`: every client trains all K models, each as far as it seems to belong to it."""

import numpy as np
from flwr.app import Array, RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.messages import packed, reply, reported
from florets.client_app.training import model_losses, trained
from florets.task.wire import kinds
from florets.task.wire.layout import write_array
from florets.task.wire.soft import NEGLIGIBLE


def train_soft(client: Client) -> RecordDict:
    """Train model l on the loss times this client's weight of l, for every l, and return all.

    Source: mixed regression, Phase 2, l. 6 to 8, with weights in place of the hard label (which minimises (6)).
    """
    losses = model_losses(client)
    weights = memberships(losses, client.num_examples, client.number(kinds.TEMPERATURE))
    models: dict[str, Array] = {}
    total = 0.0
    for index, state in enumerate(client.states()):
        update = {name: value.numpy() for name, value in state.items()}
        loss = float(losses[index])
        if weights[index] > NEGLIGIBLE:
            update, loss = trained(client, state, fraction=float(weights[index]))
        # A model that diverged has no weight: 0 times infinity would be no number.
        total += float(weights[index]) * loss if weights[index] > 0 else 0.0
        # Written at once: the arrays may be the memory of the one module that the next model is loaded into.
        models.update({f"{index}/{name}": write_array(values) for name, values in update.items()})
    metrics = {
        kinds.TRAIN_LOSS: reported(total),
        kinds.NUM_EXAMPLES: client.num_examples,
        kinds.MEMBERSHIPS: weights.tolist(),
        kinds.MODEL_LOSSES: losses.tolist(),
    }
    return reply(packed(models), metrics)


def memberships(losses: NDArray[np.float64], num_examples: int, temperature: float) -> NDArray[np.float64]:
    """Return weights (K,) proportional to exp(-n L / temperature), summing to 1.

    With the likelihood's own temperature (2 sigma^2 for squared error under noise of variance sigma^2) they are the
    posterior of the label; the smaller it is, the harder they are.

    Raises
    ------
    ValueError
        If the temperature is not above 0.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} must be above 0.")
    scores = num_examples * (losses - losses.min()) / temperature
    weights: NDArray[np.float64] = np.exp(-scores)
    weights /= weights.sum()
    return weights
