"""DP-SGD: training, and losses, that depend on each single record by a bounded amount, with noise on top."""

import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import Module
from torch.nn.utils import clip_grad_norm_

from florets.task.training.loop import new_optimizer, samples
from florets.task.training.losses import CHUNK, PLAIN, Objective, per_sample_losses, targets_of
from florets.task.training.modules import load, normalises, on_host, set_mode, torch_random
from florets.task.training.settings import Training
from florets.task.wire import noise
from florets.task.wire.sampled_noise import require_opacus

PART = 64
"""Records whose gradients are in memory at a time."""
_ROUNDING = 1e-5

Slopes = Callable[[Mapping[str, Tensor], Tensor, Tensor], dict[str, Tensor]]


def train(
    module: Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    training: Training,
    clip: float,
    multiplier: float,
    rng: np.random.Generator,
    objective: Objective = PLAIN,
) -> None:
    """Train a model in place; a step's batch holds each record with a probability of its own.

    Draws and noise are the operating system's: who knows the seed must know neither. `rng` seeds dropout alone.

    Parameters
    ----------
    clip
        Largest norm of one record's gradient, over all parameters; one that is not finite counts as 0.
    multiplier
        Standard deviation of the noise on their sum, in clips.
    objective
        The plain loss, or that with a proximal term.

    Source: Abadi et al. 2016, Alg. 1, with batches drawn as its analysis and Opacus' accountants have it.
    """
    if len(x) == 0:
        raise ValueError("training on no samples is not defined: give every client at least one sample.")
    if objective.proximal_mu is None:
        raise ValueError("privacy.kind=example: weights, augmentation and terms of the loss are not covered")
    set_mode(module, True)
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    slopes, (rate, steps) = slopes_of(module, loss), training.drawing(len(x))
    sizes = [value.numel() for value in trained.values()]
    with torch_random(rng):
        optimizer = new_optimizer(objective.begin(module, len(x)), training)
        for _ in range(steps):
            objective.before_step()
            values = {name: value.detach() for name, value in trained.items()}
            places = torch.from_numpy(drawn(len(x), rate)).to(x.device)
            total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in values.items()}
            for at in range(0, len(places), PART):
                part = places[at : at + PART]
                for name, value in clipped(slopes(values, samples(x, part), y[part]), clip).items():
                    total[name] += value
            own = noise.gaussian(sum(sizes), multiplier * clip)
            for (name, value), added in zip(trained.items(), np.split(own, np.cumsum(sizes)[:-1]), strict=True):
                noised = total[name] + torch.from_numpy(added).to(x.device).view(value.shape)
                value.grad = (noised / (rate * len(x))).to(value.dtype)
            objective.add_gradients()
            if training.clip_norm is not None:
                clip_grad_norm_(trained.values(), training.clip_norm)
            optimizer.step()


def drawn(count: int, rate: float) -> NDArray[np.int64]:
    """Return the places that are drawn, each with this probability, by the operating system's random bytes."""
    words = np.frombuffer(secrets.token_bytes(8 * count), np.uint64)
    return np.flatnonzero((words >> 11) * 2.0**-53 < rate)


def slopes_of(module: Module, loss: str) -> Slopes:
    """Return a function of parameters and records (b, ...) that gives each record's own gradient, (b, ...) by name.

    Each is computed as in a batch of one: no layer sees two records.
    """

    def value(parameters: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(module, dict(parameters), (x.unsqueeze(0),))
        return per_sample_losses(outputs, targets_of(x.unsqueeze(0), y.unsqueeze(0), loss), loss).sum()

    found: Slopes = vmap(grad(value), in_dims=(None, 0, 0), randomness="different")
    return found


def clipped(slopes: Mapping[str, Tensor], clip: float) -> dict[str, Tensor]:
    """Return the sum of records' gradients, each shortened to `clip` over all parameters."""
    norms = (
        torch.stack([slope.flatten(1).double().square().sum(dim=1) for slope in slopes.values()]).sum(dim=0).sqrt()
    )
    factors = (clip * (1 - _ROUNDING) / norms).clamp(max=1.0)
    finite = torch.isfinite(norms)
    kept = {name: slope[finite].flatten(1).double() for name, slope in slopes.items()}
    return {name: (factors[finite] @ rows).view(slopes[name].shape[1:]) for name, rows in kept.items()}


def noised_losses(
    module: Module,
    states: Iterable[Mapping[str, Tensor]],
    x: Tensor,
    y: Tensor,
    loss: str,
    bound: float,
    multiplier: float,
) -> NDArray[np.float64]:
    """Return the mean loss of each of K models (K,) with noise, each record's clipped to `bound`; raised as others'.

    One record of n moves `noise.centred` means by a norm of at most that of its own vector over n.
    """
    set_mode(module, False)
    rows = []
    for state in states:
        load(module, state)
        with torch.inference_mode():
            parts = [
                per_sample_losses(
                    module(x[at : at + CHUNK]), targets_of(x[at : at + CHUNK], y[at : at + CHUNK], loss), loss
                )
                for at in range(0, len(x), CHUNK)
            ]
        rows.append(on_host(torch.cat(parts))[0].double().numpy())
    means = noise.centred(np.stack(rows), bound).mean(axis=1) + bound / 2
    deviation = multiplier * noise.loss_norm(len(means), bound) / len(x)
    noised = means + noise.gaussian(len(means), deviation) + noise.raised_by(len(means), bound, multiplier)
    positive: NDArray[np.float64] = np.maximum(noised, 0.0)
    return positive


def check(module: Module, input_shape: Sequence[int], loss: str) -> None:
    """Raise ValueError for a model that is not trained record by record, with the layer's name."""
    require_opacus()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.validators import ModuleValidator

    module.train()
    refused = [(name, part) for name, part in module.named_modules() if not ModuleValidator.is_valid(part)]
    start = "privacy.kind=example: "
    if refused:
        name, part = refused[-1]
        raise ValueError(
            f"{start}Opacus does not train the layer {name!r}, {type(part).__name__}; use another model."
        )
    if normalises(module):
        raise ValueError(f"{start}batch normalisation mixes records; use a model without it.")
    y = torch.zeros(2, dtype=torch.int64 if loss == "cross_entropy" else torch.float32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slopes_of(module, loss)(dict(module.named_parameters()), torch.zeros(2, *input_shape), y)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{start}the model takes no single record ({error}); use another.") from error
