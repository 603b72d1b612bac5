"""DP-SGD: training with clipped gradients of single records and noise."""

import secrets
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import Module

from florets.task.training.loop import PlainOptimizer, samples
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.modules import set_mode, torch_random
from florets.task.training.objective import PLAIN, Objective
from florets.task.training.settings import Training
from florets.task.wire import noise
from florets.task.wire.sampled_noise import accountants

PART = 64
"""Records whose gradients are in memory at a time."""
LEAST_CLIP = 1e-6
"""Squares of much smaller gradients vanish in float32, so that these would not be clipped."""
# Of float32, or of a GPU's shorter products.
_ROUNDING = 1e-3

Gradients = Callable[[Mapping[str, Tensor], Tensor, Tensor], dict[str, Tensor]]
"""Takes parameters, and inputs and targets of records; see `record_gradients`."""


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
    """Train a model in place on the plain loss, with a proximal term or without; each step draws its records anew.

    Draws and noise come from the operating system: knowing the seed must reveal neither. `rng` seeds only dropout.

    Source: Abadi et al. 2016, Alg. 1, with the Poisson sampling that Opacus' accountants assume.
    """
    if len(x) == 0 or objective.proximal_mu is None:
        raise ValueError(
            "privacy.kind=example: needs samples, and covers neither weights nor other terms of the loss"
        )
    set_mode(module, True)
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    gradients, (rate, steps) = record_gradients(module, loss), training.drawing(len(x))
    sizes = [value.numel() for value in trained.values()]
    with torch_random(rng):
        optimizer = PlainOptimizer(objective.begin(module, len(x)), training)
        for _ in range(steps):
            values = {name: value.detach() for name, value in trained.items()}
            places = torch.from_numpy(drawn(len(x), rate)).to(x.device)
            total = clipped_sum(gradients, values, x, y, places, clip)
            own = np.split(noise.gaussian(sum(sizes), multiplier * clip), np.cumsum(sizes)[:-1])
            for (name, value), added in zip(trained.items(), own, strict=True):
                noised = total[name] + torch.from_numpy(added).to(x.device).view(value.shape)
                value.grad = (noised / (rate * len(x))).to(value.dtype)
            objective.add_gradients()
            optimizer.step()


def drawn(count: int, rate: float) -> NDArray[np.int64]:
    """Return the indices of a Poisson sample with this rate, drawn from the operating system's random bytes."""
    words = np.frombuffer(secrets.token_bytes(8 * count), np.uint64)
    return np.flatnonzero((words >> 11) * 2.0**-53 < rate)


def record_gradients(module: Module, loss: str) -> Gradients:
    """Return a function of parameters and records (b, ...) that gives each record's gradient, (b, ...) by name."""

    def value(parameters: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(module, dict(parameters), (x.unsqueeze(0),))
        return per_sample_losses(outputs, targets_of(x.unsqueeze(0), y.unsqueeze(0), loss), loss).sum()

    return vmap(grad(value), in_dims=(None, 0, 0), randomness="different")


def clipped_sum(
    gradients: Gradients, values: Mapping[str, Tensor], x: Tensor, y: Tensor, places: Tensor, clip: float
) -> dict[str, Tensor]:
    """Return the sum of the gradients of the records at `places`, each clipped to `clip`; infinite ones add 0."""
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in values.items()}
    finite = torch.ones(len(places), dtype=torch.bool, device=places.device)
    for at in range(0, len(places), PART):
        part = places[at : at + PART]
        rows = {name: row.flatten(1) for name, row in gradients(values, samples(x, part), y[part]).items()}
        # In parts: of millions of entries a norm in float32 is wrong by a hundredth.
        pieces = [piece for row in rows.values() for piece in torch.split(row, 2**16, 1)]
        norms = torch.stack([piece.norm(dim=1) for piece in pieces]).norm(dim=0)
        finite[at : at + PART] = torch.isfinite(norms)
        factors = (clip * (1 - _ROUNDING) / norms).clamp(max=1.0)
        for name, row in rows.items():
            total[name] += (factors @ row).view(values[name].shape)
    if finite.all():
        return total
    # Anew without them: how the others' gradients are rounded depends on how many records are computed together.
    return clipped_sum(gradients, values, x, y, places[finite], clip)


def check(module: Module, input_shape: Sequence[int], y: Tensor, loss: str) -> None:
    """Raise ValueError for a model that is not trained record by record, with its layer; `y` has two targets."""
    accountants()
    from opacus.validators import ModuleValidator

    for name, part in reversed(list(module.train().named_modules())):
        if not ModuleValidator.is_valid(part):
            raise ValueError(f"privacy.kind=example: {type(part).__name__} {name} is not trained record by record")
    try:
        x = torch.stack([torch.zeros(*input_shape), torch.ones(*input_shape)])
        trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        record_gradients(module, loss)(trained, x, y)
        # Losses are taken of many records at a time.
        with torch.inference_mode():
            both, alone = module.eval()(x), torch.cat([module(x[:1]), module(x[1:])])
        if not torch.allclose(both, alone, rtol=1e-3, atol=1e-4):
            raise ValueError("its output for a record depends on the other records of the batch")
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"privacy.kind=example: the model cannot be trained on a single record ({error})") from error
