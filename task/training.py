"""What a client does with a model and its data: train it, or take its gradient."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from florets.task.losses import CHUNK, per_sample_losses, targets_of
from florets.task.optimizers import Adam, Sgd
from florets.task.seeding import torch_random


@dataclass(frozen=True)
class TrainSettings:
    """Settings of local training.

    Parameters
    ----------
    learning_rate
        Above 0.
    local_epochs
        Passes over the client's data a round, at least 1.
    batch_size
        Samples a step, at least 1; the last batch of an epoch may be smaller.
    optimizer
        ``adam`` (PyTorch's default betas and eps) or ``sgd``; a fresh one at every call.
    momentum
        Of SGD, in [0, 1).
    weight_decay
        L2 penalty's factor, added to the gradient, at least 0.
    proximal_mu
        Factor mu of FedProx's term mu/2 ||theta - theta_start||^2, at least 0.
    """

    learning_rate: float
    local_epochs: int
    batch_size: int
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal_mu: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a setting out of its range."""
        rules = (
            ("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0"),
            ("local_epochs", self.local_epochs, self.local_epochs >= 1, "at least 1"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("optimizer", self.optimizer, self.optimizer in ("adam", "sgd"), "'adam' or 'sgd'"),
            ("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0"),
            ("proximal_mu", self.proximal_mu, self.proximal_mu >= 0, "at least 0"),
        )
        for name, value, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name}={value!r} must be {rule}.")


def local_update(
    module: Module, x: Tensor, y: Tensor, loss: str, settings: TrainSettings, rng: np.random.Generator
) -> float:
    """Train a model in place on one client's data.

    Parameters
    ----------
    module
        Holds the start parameters, and the trained ones afterwards (in train mode).
    x, y
        Inputs (n, *input_shape) and targets (n,), on the module's device.
    loss
        See `florets.task.losses.per_sample_losses`.
    settings
        Optimiser, epochs, batch size.
    rng
        Shuffles once an epoch, and seeds dropout.

    Returns
    -------
    float
        Mean loss over the samples of the last epoch, each as seen before its step; no proximal term.

    Raises
    ------
    ValueError
        If there is no sample.

    Source: CLoVE Alg. 1, l. 19 (LocalUpdate), with a fresh optimiser each round as the published code has it.
    FedProx: Li et al. 2020, Alg. 2.
    """
    if len(x) == 0:
        raise ValueError("training on no samples is not defined: give every client at least one sample.")
    module.train()
    trainable = [p for p in module.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in trainable] if settings.proximal_mu > 0 else []
    optimizer = _optimizer(trainable, settings)
    normalises = any(isinstance(part, _BatchNorm) for part in module.modules())
    size = settings.batch_size
    seen = torch.zeros((), dtype=torch.float64, device=x.device)
    with torch_random(rng):
        for _ in range(settings.local_epochs):
            order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
            # One gather an epoch; batches are then slices.
            x_epoch, y_epoch = x[order], y[order]
            seen.zero_()
            for begin, end in _batches(len(x), size, joined=normalises):
                x_batch, y_batch = x_epoch[begin:end], y_epoch[begin:end]
                for parameter in trainable:
                    parameter.grad = None
                outputs = module(x_batch)
                mean = per_sample_losses(outputs, targets_of(x_batch, y_batch, loss), loss).mean()
                mean.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
                for parameter, origin in zip(trainable, start, strict=False):
                    # The proximal gradient, mu (theta - theta_start), is added by hand: no graph is needed.
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter.detach() - origin, alpha=settings.proximal_mu)
                optimizer.step()
                seen += mean.detach() * len(x_batch)
    return seen.item() / len(x)


def _batches(num_samples: int, size: int, joined: bool) -> list[tuple[int, int]]:
    """Return begin and end of each batch; with `joined`, a last batch of one sample becomes part of the one before.

    Batch normalisation has no variance over one sample, and PyTorch refuses to train on it.
    """
    starts = list(range(0, num_samples, size))
    if joined and num_samples % size == 1 and len(starts) > 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], num_samples], strict=True))


def _optimizer(parameters: list[torch.nn.Parameter], settings: TrainSettings) -> Sgd | Adam:
    if settings.optimizer == "adam":
        return Adam(parameters, settings.learning_rate, settings.weight_decay)
    return Sgd(parameters, settings.learning_rate, settings.momentum, settings.weight_decay)


def gradient(
    module: Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    batch: int | None,
    rng: np.random.Generator,
    chunk: int = CHUNK,
) -> tuple[dict[str, NDArray[Any]], float]:
    """Return the gradient of the mean loss, in eval mode, and that loss.

    Parameters
    ----------
    module
        The model; its parameters do not change, and it is left in eval mode without gradients.
    x, y, loss
        See `local_update`.
    batch
        Samples drawn without replacement for a stochastic gradient; None, or more than there are: all.
    rng
        Draws the batch.
    chunk
        Samples of one backward pass; the parts are added up, so that memory does not grow with the data.

    Returns
    -------
    dict, float
        One array for every entry of the state dict; buffers, and parameters without gradient, have zeros. The mean
        loss over the samples that the gradient was taken on.

    Raises
    ------
    ValueError
        If there is no sample, or `batch` is not positive.

    Source: CLoVE Alg. 1, l. 21-22 (option II).
    """
    if len(x) == 0:
        raise ValueError("a gradient over no samples is not defined: give every client at least one sample.")
    if batch is not None and batch < 1:
        raise ValueError(f"gradient_batch={batch} must be at least 1, or 'full'.")
    if batch is not None and batch < len(x):
        drawn = torch.from_numpy(rng.choice(len(x), size=batch, replace=False)).to(x.device)
        x, y = x[drawn], y[drawn]
    module.eval()
    module.zero_grad(set_to_none=True)
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for begin in range(0, len(x), chunk):
        x_part, y_part = x[begin : begin + chunk], y[begin : begin + chunk]
        losses = per_sample_losses(module(x_part), targets_of(x_part, y_part, loss), loss)
        (losses.sum() / len(x)).backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
        total += losses.detach().sum(dtype=torch.float64)
    # Tied weights stand in the state dict under each of their names, and the server moves each of them.
    taken = {name: parameter.grad for name, parameter in module.named_parameters(remove_duplicate=False)}
    gradients: dict[str, NDArray[Any]] = {}
    for name, value in module.state_dict().items():
        grad = taken.get(name)
        # Not copied: the module lets go of its gradients below.
        gradients[name] = np.zeros_like(value.cpu().numpy()) if grad is None else grad.cpu().numpy()
    module.zero_grad(set_to_none=True)
    return gradients, total.item() / len(x)
