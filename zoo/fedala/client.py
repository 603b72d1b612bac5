"""FedALA's clients: training and tests of a client's own mixture of the global model and its upper layers."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor
from torch.nn import Module

from florets import Update
from florets.client_app.client import Client
from florets.client_app.handlers.evaluate import evaluate
from florets.client_app.training import packed, trained
from florets.task.randomness import Purpose
from florets.task.training.losses import count, per_sample_losses, targets_of
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.fedala.messages import MixedUpdate

Tensors = Mapping[str, Tensor]

WINDOW = 10
"""Passes over whose losses the spread is taken that says whether the weights have converged."""
FRACTION = 0.8
"""Part of a client's samples on which weights are learned."""
TOLERANCE = 0.01
"""First weights have converged once the last passes' losses have a smaller standard deviation."""
MOST_PASSES = 50
"""Passes after which first weights are taken as they are."""


def mixture(shared: Tensors, own: Tensors, weights: Tensors) -> dict[str, Tensor]:
    """Return the global model with its upper layers replaced by own + (global - own) * weight, entry by entry.

    `shared` is the global model by the names of the state dict; `own` are the client's upper layers, and `weights` in
    [0, 1] one for each of their entries. Integer entries stay global.
    """
    return {
        # lerp is exact at both ends, so that with weights of 1 this is the global model to the bit.
        name: torch.lerp(own[name], value, weights[name]) if name in own and value.is_floating_point() else value
        for name, value in shared.items()
    }


def learned_weights(
    module: Module,
    shared: Tensors,
    own: Tensors,
    weights: Tensors,
    x: Tensor,
    y: Tensor,
    loss: str,
    rng: np.random.Generator,
    *,
    rate: float,
    batch_size: int,
    most_passes: int,
    tolerance: float = TOLERANCE,
) -> dict[str, Tensor]:
    """Return the weights of a client's mixture after some passes over a part of its training samples.

    Training starts from `weights`, see `mixture`, and takes steps of the size `rate`. They have converged once the
    last `WINDOW` passes' losses have a standard deviation below `tolerance`, and are taken as they are after
    `most_passes`. Those of entries without a gradient do not change. The module holds some mixture afterwards.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1 (the weights' update and its repetition until they
    converge). Deviation: a pass's mean loss is what converges, in eval mode; the part of the samples is drawn.
    """
    module.load_state_dict(shared)
    module.eval()
    upper = {name: p for name, p in module.named_parameters() if name in own and p.requires_grad}
    found = {name: value.to(x.device, copy=True) for name, value in weights.items()}
    ends = {name: (own[name].to(x.device), shared[name].to(x.device)) for name in upper}
    chosen = rng.choice(len(x), max(1, round(FRACTION * len(x))), replace=False)
    losses: list[float] = []
    for _ in range(most_passes):
        order, total = torch.from_numpy(rng.permutation(chosen)).to(x.device), 0.0
        for part in order.split(batch_size):  # type: ignore[no-untyped-call]  # torch leaves it without types
            with torch.no_grad():
                for name, parameter in upper.items():
                    parameter.copy_(torch.lerp(*ends[name], found[name]))
            inputs = x[part]
            outputs = module(inputs)
            value = per_sample_losses(outputs, targets_of(inputs, y[part], loss), loss).mean()
            gradients = torch.autograd.grad(value, list(upper.values()))
            for (name, (mine, common)), gradient in zip(ends.items(), gradients, strict=True):
                found[name] = (found[name] - rate * gradient * (common - mine)).clamp(0.0, 1.0)
            total += value.item() * len(part)
        count(gradients=len(chosen))
        losses.append(total / len(chosen))
        if len(losses) > WINDOW and float(np.std(losses[-WINDOW:])) < tolerance:
            break
    return {name: value.cpu() for name, value in found.items()}


def mixed(client: Client) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the model that this client starts from, and the weights of the mixture, learned on its training data.

    Where the message holds weights, they are trained for one more pass; else from 1 until they have converged.
    """
    shared, own = client.states()[0], client.states(kinds.OWN)[0]
    known = kinds.MIX in client.content
    start = client.states(kinds.MIX)[0] if known else {name: torch.ones(value.shape) for name, value in own.items()}
    weights = learned_weights(
        client.module,
        shared,
        own,
        start,
        client.data.x_train,
        client.data.y_train,
        client.loss,
        client.random(Purpose.LOCAL_AGGREGATION),
        rate=client.number(kinds.MIX_RATE),
        batch_size=int(client.number(kinds.MIX_BATCH, client.training.batch_size)),
        most_passes=1 if known else MOST_PASSES,
    )
    return mixture(shared, own, weights), weights


def train_mixed(client: Client) -> RecordDict:
    """Return the model after local training, and the weights of the mixture that it began as, where there was one.

    A client that has no layers of its own yet trains the global model.

    Source: Zhang et al. 2023 (FedALA), Alg. 1: the clients' part.
    """
    n = client.num_examples
    if kinds.OWN not in client.content:
        arrays, loss = trained(client, client.states()[0])
        return pack(Update, values=arrays, train_loss=loss, num_examples=n)
    start, weights = mixed(client)
    mix = packed({name: value.numpy() for name, value in weights.items()})
    arrays, loss = trained(client, start)
    return pack(MixedUpdate, values=arrays, train_loss=loss, num_examples=n, mix=mix)


def evaluate_mixed(client: Client) -> RecordDict:
    """Test this client's mixture, or the global model where it has no layers of its own yet."""
    return evaluate(client, mixed(client)[0] if kinds.OWN in client.content else None)
