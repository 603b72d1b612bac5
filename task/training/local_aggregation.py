"""FedALA's mixture of a client's own upper layers with the global ones, and the learning of its weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from florets.task.training.losses import count, per_sample_losses, targets_of
from florets.task.training.modules import outputs_of
from florets.task.training.settings import Precision

Tensors = Mapping[str, Tensor]

WINDOW = 10
"""Passes over whose losses the spread is taken that says whether the weights have converged."""


@dataclass(frozen=True)
class WeightSettings:
    """How the weights of a mixture are learned.

    Parameters
    ----------
    rate
        Step size eta, at least 0.
    batch_size
        Samples of a step.
    fraction
        Part of the client's samples that is used, above 0 and at most 1.
    tolerance
        Weights have converged once the last `WINDOW` passes' losses have a smaller standard deviation.
    most_passes
        Passes after which they are taken as they are; 1: a single pass.
    """

    rate: float
    batch_size: int
    fraction: float
    tolerance: float
    most_passes: int

    def __post_init__(self) -> None:
        """Raise ValueError for a setting out of its range."""
        rules = (
            ("rate", self.rate, self.rate >= 0, "at least 0"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("fraction", self.fraction, 0 < self.fraction <= 1, "above 0 and at most 1"),
            ("tolerance", self.tolerance, self.tolerance >= 0, "at least 0"),
            ("most_passes", self.most_passes, self.most_passes >= 1, "at least 1"),
        )
        for name, value, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name}={value!r} of a mixture's weights must be {rule}.")


def mixture(shared: Tensors, own: Tensors, weights: Tensors) -> dict[str, Tensor]:
    """Return the global model with its upper layers replaced by own + (global - own) * weight, entry by entry.

    Parameters
    ----------
    shared
        The global model, by the names of the state dict.
    own, weights
        The client's upper layers, and a weight in [0, 1] for each of their entries. Integer entries stay global.
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
    settings: WeightSettings,
    rng: np.random.Generator,
    sample_weights: Tensor | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    precision: Precision = "float32",
) -> dict[str, Tensor]:
    """Return the weights of a client's mixture after some passes over a part of its training samples.

    Parameters
    ----------
    module
        Holds some mixture afterwards, in eval mode.
    shared, own, weights
        See `mixture`; the weights are those to start from. Those of entries without a gradient do not change.
    x, y
        All of the client's samples, on the module's device.
    rng
        Draws the part of the samples, and shuffles it once a pass.
    sample_weights
        (n,), weights of the samples in the loss; None: 1 each.
    augment, precision
        See `florets.task.training.objective.Objective` and `florets.task.training.settings.Training`.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1 (the weights' update and its repetition until they
    converge). Deviation: a pass's mean loss is what converges, in eval mode; the part of the samples is drawn.
    """
    module.load_state_dict(shared)
    module.eval()
    upper = {name: p for name, p in module.named_parameters() if name in own and p.requires_grad}
    found = {name: value.to(x.device, copy=True) for name, value in weights.items()}
    ends = {name: (own[name].to(x.device), shared[name].to(x.device)) for name in upper}
    chosen = rng.choice(len(x), max(1, round(settings.fraction * len(x))), replace=False)
    losses: list[float] = []
    for _ in range(settings.most_passes):
        order, total = torch.from_numpy(rng.permutation(chosen)).to(x.device), 0.0
        for part in order.split(settings.batch_size):  # type: ignore[no-untyped-call]  # torch leaves it without types
            with torch.no_grad():
                for name, parameter in upper.items():
                    parameter.copy_(torch.lerp(*ends[name], found[name]))
            inputs = x[part] if augment is None else augment(x[part])
            outputs = outputs_of(module, inputs, precision)
            each = per_sample_losses(outputs, targets_of(inputs, y[part], loss), loss)
            value = each.mean() if sample_weights is None else (each * sample_weights[part]).mean()
            gradients = torch.autograd.grad(value, list(upper.values()))
            for (name, (mine, common)), gradient in zip(ends.items(), gradients, strict=True):
                found[name] = (found[name] - settings.rate * gradient * (common - mine)).clamp(0.0, 1.0)
            total += value.item() * len(part)
        count(gradients=len(chosen))
        losses.append(total / len(chosen))
        if len(losses) > WINDOW and float(np.std(losses[-WINDOW:])) < settings.tolerance:
            break
    return {name: value.cpu() for name, value in found.items()}
