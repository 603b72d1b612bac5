"""Local training of a model on a client's data, and its gradient."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from florets.task.layers import frozen_layers
from florets.task.training.losses import CHUNK, count, per_sample_losses, record, targets_of
from florets.task.training.modules import (
    Precision,
    draws,
    named_parameters,
    normalises,
    on_host,
    outputs_of,
    set_mode,
    state_of,
    torch_random,
    torch_seed,
)
from florets.task.training.objective import PLAIN, Batch, Objective
from florets.task.training.optimizers import CLASSES, Adam, Sgd, torch_optimizer


@dataclass(frozen=True)
class TrainSettings:
    """Settings of local training.

    Parameters
    ----------
    learning_rate
        Above 0.
    local_epochs
        Passes over the client's data a round, above 0; of a fraction so many of the epoch's steps, rounded up.
    batch_size
        Samples a step, at least 1; the last batch of an epoch may be smaller.
    optimizer
        A name in `florets.task.training.optimizers.CLASSES`; a fresh one at every call.
    momentum
        Of SGD and RMSprop, in [0, 1).
    weight_decay
        L2 penalty's factor, added to the gradient (of AdamW: decoupled from it), at least 0.
    local_steps
        Steps a round, whatever the client's number of samples, in place of `local_epochs`; 0: not given.
    optimizer_options
        Further parameters of the optimiser's class; the others have PyTorch's defaults.
    clip_norm
        Largest norm of a step's gradient, over all parameters together, above 0; None: it is not clipped.
    precision
        Of forward and backward passes.
    """

    learning_rate: float
    local_epochs: float
    batch_size: int
    optimizer: str = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0
    local_steps: int = 0
    optimizer_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    clip_norm: float | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        """Raise ValueError for a setting out of its range."""
        rules = (
            # A schedule may end at 0.
            ("learning_rate", self.learning_rate, self.learning_rate >= 0, "at least 0"),
            ("local_epochs", self.local_epochs, self.local_epochs > 0 and isfinite(self.local_epochs), "above 0"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("optimizer", self.optimizer, self.optimizer in CLASSES, f"one of {', '.join(CLASSES)}"),
            ("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "at least 0"),
            ("local_steps", self.local_steps, self.local_steps >= 0, "at least 0"),
            ("clip_norm", self.clip_norm, self.clip_norm is None or self.clip_norm > 0, "above 0"),
            ("precision", self.precision, self.precision in get_args(Precision), "float32 or bf16"),
        )
        for name, value, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name}={value!r} must be {rule}.")

    @property
    def is_plain(self) -> bool:
        """Whether steps are those of `plain_optimizer` in float32, which stacks of several models take as well."""
        return self.optimizer in ("adam", "sgd") and not self.optimizer_options and self.precision == "float32"

    @property
    def is_gradient_descent(self) -> bool:
        """Whether a step moves the model by the learning rate times the gradient, and by nothing else."""
        steps_by_gradient = self.optimizer == "sgd" and self.momentum == 0 and self.weight_decay == 0
        return self.is_plain and steps_by_gradient and self.clip_norm is None

    def num_steps(self, batches: int) -> int:
        """Return the steps of one local training, where an epoch has so many batches."""
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return self.local_steps or max(1, ceil(self.local_epochs * batches - 1e-9))


def local_update(
    module: Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    settings: TrainSettings,
    rng: np.random.Generator,
    objective: Objective = PLAIN,
) -> float:
    """Train a model in place on one client's data.

    Parameters
    ----------
    module
        Holds the start parameters, and the trained ones afterwards (in train mode).
    x, y
        Inputs (n, *input_shape) and targets (n,), on the module's device.
    loss
        See `florets.task.training.losses.per_sample_losses`.
    settings
        Optimiser, epochs or steps, batch size.
    rng
        Shuffles once an epoch, and seeds dropout.
    objective
        What stands beside the loss.

    Returns
    -------
    float
        Mean loss over the samples seen in the last epoch begun, each before its step; without weights and terms.

    Raises
    ------
    ValueError
        If there is no sample, or the objective's weights are not one a sample.

    Source: CLoVE Alg. 1, l. 19 (LocalUpdate), with a fresh optimiser each round as the published code has it.
    """
    if len(x) == 0:
        raise ValueError("training on no samples is not defined: give every client at least one sample.")
    set_mode(module, True)
    batches = _batches(len(x), settings.batch_size, joined=normalises(module))
    left, in_epoch, passes = settings.num_steps(len(batches)), 0, 0
    seen = torch.zeros((), dtype=torch.float64, device=x.device)
    with (
        _seeded(module, objective, rng),
        frozen_layers(module, objective.frozen) if objective.frozen else nullcontext(),
    ):
        trainable = objective.begin(module, len(x))
        optimizer = new_optimizer(trainable, settings)
        while left > 0:
            order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
            # One gather an epoch; batches are then slices.
            x_epoch, y_epoch = samples(x, order), y[order]
            weights = None if objective.weights is None else objective.weights[order]
            seen.zero_()
            for begin, end in batches[:left]:
                for parameter in trainable:
                    parameter.grad = None
                objective.before_step()
                x_batch, y_batch = x_epoch[begin:end], y_epoch[begin:end]
                if objective.augment is not None:
                    x_batch = objective.augment(x_batch)
                outputs = outputs_of(module, x_batch, settings.precision)
                losses = per_sample_losses(outputs, targets_of(x_batch, y_batch, loss), loss)
                mean = losses.mean()
                value = mean if weights is None else (losses * weights[begin:end]).mean()
                value = objective.beside(value, Batch(module, x_batch, y_batch, outputs))
                value.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
                objective.add_gradients()
                if settings.clip_norm is not None:
                    clip_grad_norm_(trainable, settings.clip_norm)
                optimizer.step()
                record(mean)
                seen += mean.detach() * len(x_batch)
                in_epoch = end
            passes += in_epoch
            left -= len(batches)
    count(gradients=passes)
    return seen.item() / in_epoch


def steps_of(module: Module, num_samples: int, settings: TrainSettings) -> int:
    """Return the number of steps that `local_update` takes."""
    return settings.num_steps(len(_batches(num_samples, settings.batch_size, joined=normalises(module))))


def training_batches(
    module: Module, x: Tensor, y: Tensor, settings: TrainSettings, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets of each step that `local_update` takes, in its order; see there."""
    batches = _batches(len(x), settings.batch_size, joined=normalises(module))
    left = settings.num_steps(len(batches))
    torch_seed(rng)
    while left > 0:
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        x_epoch, y_epoch = samples(x, order), y[order]
        yield from ((x_epoch[begin:end], y_epoch[begin:end]) for begin, end in batches[:left])
        left -= len(batches)


def _seeded(module: Module, objective: Objective, rng: np.random.Generator) -> AbstractContextManager[None]:
    """Return the context that local computation draws in; where nothing draws, the seed is drawn and not used."""
    if draws(module) or objective.terms:
        return torch_random(rng)
    torch_seed(rng)
    return nullcontext()


def samples(x: Tensor, places: Tensor) -> Tensor:
    """Return the samples at some places, ``x[places]``, with the strides that this has; whole samples are copied."""
    if x.is_contiguous():
        return x.index_select(0, places)
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.permute(0, 2, 3, 1).index_select(0, places).permute(0, 3, 1, 2)
    return x[places]


def _batches(num_samples: int, size: int, joined: bool) -> list[tuple[int, int]]:
    """Return begin and end of each batch; with `joined`, a last batch of one sample becomes part of the one before.

    Batch normalisation has no variance over one sample, and PyTorch refuses to train on it.
    """
    starts = list(range(0, num_samples, size))
    if joined and num_samples % size == 1 and len(starts) > 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], num_samples], strict=True))


def new_optimizer(parameters: Sequence[Tensor], settings: TrainSettings) -> Sgd | Adam | Optimizer:
    """Return the optimiser of one local training.

    Raises
    ------
    ValueError
        If its class takes no such options.
    """
    if settings.optimizer in ("adam", "sgd") and not settings.optimizer_options:
        return plain_optimizer(parameters, settings)
    return torch_optimizer(
        settings.optimizer,
        parameters,
        settings.learning_rate,
        settings.momentum,
        settings.weight_decay,
        settings.optimizer_options,
    )


def check_optimizer(settings: TrainSettings) -> None:
    """Make an optimiser; see `new_optimizer`."""
    new_optimizer([torch.zeros(1)], settings)


def plain_optimizer(parameters: Sequence[Tensor], settings: TrainSettings) -> Sgd | Adam:
    """Return the optimiser of one local training that `is_plain`."""
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
    untrained: Collection[str] = (),
    objective: Objective = PLAIN,
    clip_norm: float | None = None,
    precision: Precision = "float32",
) -> tuple[dict[str, NDArray[Any]], float]:
    """Return the gradient of the mean loss, in train mode as in `local_update`, and that loss.

    Parameters
    ----------
    module
        The model; its parameters do not change, and it is left in train mode without gradients. Its running
        statistics are brought up to date.
    x, y, loss
        See `local_update`.
    batch
        Samples drawn without replacement for a stochastic gradient; None, or more than there are: all.
    rng
        Draws the batch, and seeds dropout.
    chunk
        Samples of one backward pass; the parts are added up, so that memory does not grow with the data. Batch
        normalisation takes the statistics of each part.
    untrained
        Names of the entries whose values after the pass are returned in place of a gradient.
    objective
        What stands beside the loss.
    clip_norm, precision
        See `TrainSettings`: of the gradient that is returned, and of each pass.

    Returns
    -------
    dict, float
        One array for every entry of the state dict; buffers that are not in `untrained`, and parameters without
        gradient, have zeros. The mean loss over the samples that the gradient was taken on.

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
    weights, num_samples = objective.weights, len(x)
    if batch is not None and batch < len(x):
        drawn = torch.from_numpy(rng.choice(len(x), size=batch, replace=False)).to(x.device)
        x, y = samples(x, drawn), y[drawn]
        weights = None if weights is None else weights[drawn]
    set_mode(module, True)
    parameters = named_parameters(module)
    _let_go(parameters.values())
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    with (
        _seeded(module, objective, rng),
        frozen_layers(module, objective.frozen) if objective.frozen else nullcontext(),
    ):
        trained = objective.begin(module, num_samples)
        for begin, end in _batches(len(x), chunk, joined=normalises(module)):
            x_part, y_part = x[begin:end], y[begin:end]
            if objective.augment is not None:
                x_part = objective.augment(x_part)
            outputs = outputs_of(module, x_part, precision)
            losses = per_sample_losses(outputs, targets_of(x_part, y_part, loss), loss)
            weighted = losses if weights is None else losses * weights[begin:end]
            value = objective.beside(
                weighted.sum() / len(x), Batch(module, x_part, y_part, outputs), (end - begin) / len(x)
            )
            value.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            total += losses.detach().sum(dtype=torch.float64)
        objective.add_gradients()
        if clip_norm is not None:
            clip_grad_norm_(trained, clip_norm)
    count(gradients=len(x))
    # Tied weights stand in the state dict under each of their names, and the server moves each of them.
    found: dict[str, Tensor] = {}
    for name, value in state_of(module).items():
        grad = parameters[name].grad if name in parameters else None
        if name in untrained:
            found[name] = value.detach().clone()
        else:
            # Not copied: the module lets go of its gradients below.
            found[name] = torch.zeros_like(value) if grad is None else grad
    _let_go(parameters.values())
    *values, summed = on_host(*found.values(), total)
    gradients = {name: value.detach().numpy() for name, value in zip(found, values, strict=True)}
    return gradients, summed.item() / len(x)


def _let_go(parameters: Iterable[Parameter]) -> None:
    """Let parameters go of their gradients."""
    for parameter in parameters:
        parameter.grad = None
