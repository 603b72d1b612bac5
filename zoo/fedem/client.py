"""FedEM's clients: they mix K models, train all of them, and test the mixture."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.handlers.evaluate import answer_tests, tested_parts
from florets.client_app.session import State
from florets.client_app.training import reported, trained
from florets.task.randomness import Purpose
from florets.task.training.losses import Evaluated
from florets.task.training.mixture import (
    class_rarity,
    class_sums,
    evaluated_mixture,
    responsibilities,
    sample_losses,
)
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.fedem.messages import ClassMixtureUpdate, MixtureUpdate

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Step:
    """One step of expectation maximisation on a client.

    Models after training, shares, the loss before it and, where the message has class shares, the responsibilities
    summed by class (K, C).
    """

    models: list[dict[str, NDArray[np.generic]]]
    shares: NDArray[np.float64]
    loss: float
    class_sums: NDArray[np.float64] | None


def train_mixture(client: Client) -> RecordDict:
    """Find this client's shares of the K models that came, train every model on its part of the data, return all.

    Where each model's class shares came, a sample also counts for a model the more, the rarer its class is there, and
    the sums of the responsibilities by class go back.

    Source: Marfoq et al. 2021 (FedEM), Alg. 1, and Guo et al. 2024 (FedRC): the client's steps.
    """
    step = _step(client, Purpose.LOCAL_TRAINING, client.training)
    loss, n = reported(step.loss), client.num_examples
    found = {"vectors": step.models, "train_loss": loss, "num_examples": n, "shares": step.shares}
    if step.class_sums is None:
        return pack(MixtureUpdate, **found)
    return pack(ClassMixtureUpdate, **found, class_sums=step.class_sums)


def evaluate_mixture(client: Client) -> RecordDict:
    """Test the mixture on this client's data and, where the message asks for it, one that a step fine-tunes."""
    shares = _shares(client)

    def tested(states: Sequence[State], weights: NDArray[np.float64]) -> dict[Any, Evaluated]:
        return {
            part: evaluated_mixture(client.module, states, weights, *client.data.part(part), client.loss)
            for part in tested_parts(client)
        }

    plain, tuned = tested(client.states(), shares), None
    if epochs := client.number(kinds.FINE_TUNE_EPOCHS, 0):
        training = replace(client.training, local_epochs=epochs, local_steps=None)
        step = _step(client, Purpose.FINE_TUNING, training)
        states = [{name: torch.from_numpy(values) for name, values in model.items()} for model in step.models]
        tuned = tested(states, step.shares)
    return answer_tests(client, plain, tuned)


def _step(client: Client, purpose: Purpose, training: Training) -> Step:
    """Weigh the samples by each model's responsibility for them, and train each model on its own weights."""
    states, data = client.states(), client.data
    losses = sample_losses(client.module, states, data.x_train, data.y_train, client.loss)
    class_shares, labels = _class_shares(client), data.y_train.cpu().numpy()
    rarity = None if class_shares is None else class_rarity(labels, class_shares)
    weights, loss = responsibilities(losses, _shares(client), rarity)
    models = []
    for index, state in enumerate(states):
        if not np.isfinite(losses[:, index]).all() and not weights[:, index].any():
            # Of no sample its own, it stays as it is: zero times such a loss is no number, and would cost the reply.
            models.append({name: value.cpu().numpy().copy() for name, value in state.items()})
            continue
        objective = client.objective
        # Weights of 1 are none: one model alone is trained by whatever way FedAvg's is.
        if (weights[:, index] != 1).any():
            own = torch.from_numpy(weights[:, index]).to(data.x_train)
            objective = replace(objective, weights=own)
        arrays, _ = trained(client, state, purpose, objective=objective, training=training)
        # Copied: the arrays may be the memory of the one module that the next model is loaded into.
        models.append({name: np.array(values) for name, values in arrays.items()})
    sums = None if class_shares is None else class_sums(weights, labels, class_shares.shape[1])
    return Step(models, weights.mean(axis=0), loss, sums)


def _shares(client: Client) -> NDArray[np.float64]:
    """Return this client's shares of the models that came."""
    sent = client.config.get(kinds.SHARES)
    count = len(client.states())
    if not isinstance(sent, list) or len(sent) != count or not all(isinstance(one, float) for one in sent):
        raise ValueError(f"the message's config has {kinds.SHARES}={sent!r}, not a share of each of {count} models")
    shares = np.array(sent, dtype=np.float64)
    if not ((shares >= 0).all() and abs(shares.sum() - 1) <= _TOLERANCE):
        raise ValueError(f"the message's config has {kinds.SHARES}={sent!r}: shares are not negative and sum to 1")
    return shares


def _class_shares(client: Client) -> NDArray[np.float64] | None:
    """Return the share of each class in what each model is responsible for, (K, C); None where none came."""
    sent = client.config.get(kinds.CLASS_SHARES)
    if sent is None:
        return None
    if client.loss != "cross_entropy":
        raise ValueError(f"{kinds.CLASS_SHARES} came, but task.loss={client.loss} has no classes")
    count, classes = len(client.states()), client.task.num_outputs
    values = sent if isinstance(sent, list) and all(isinstance(one, float) for one in sent) else []
    if len(values) != count * classes:
        raise ValueError(f"{kinds.CLASS_SHARES} are not a number for each of {count} models and {classes} classes")
    shares = np.array(values, dtype=np.float64).reshape(count, classes)
    if not ((shares > 0).all() and (np.abs(shares.sum(axis=1) - 1) <= _TOLERANCE).all()):
        raise ValueError(f"{kinds.CLASS_SHARES} must be above 0 and sum to 1 for each model")
    return shares
