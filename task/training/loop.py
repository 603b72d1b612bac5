"""Local training of a model on a client's data with its optimizers, and its gradient."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from florets.task.layers import frozen_layers
from florets.task.training import modules
from florets.task.training.losses import CHUNK, count, per_sample_losses, record, targets_of
from florets.task.training.objective import PLAIN, Batch, Objective
from florets.task.training.settings import Training


class PlainOptimizer:
    """SGD, or Adam with PyTorch's default betas and eps: step by step what a new one of ``torch.optim`` does."""

    def __init__(self, parameters: Sequence[Tensor], training: Training) -> None:
        self._parameters, self._training = parameters, training
        self._fused = _fused(parameters)
        self._momentum: list[Tensor | None] = [None] * len(parameters)
        self._moments: list[tuple[Tensor, Tensor]] = []
        self._steps: list[Tensor] = []
        if training.optimizer == "adam":
            self._moments = [(_zeros_like(p), _zeros_like(p)) for p in parameters]
            # PyTorch keeps the count of steps with the parameter where the kernel is fused.
            self._steps = [torch.zeros((), device=p.device if self._fused else "cpu") for p in parameters]

    def step(self) -> None:
        """Move the parameters by one step."""
        moved = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parameters = [self._parameters[i] for i in moved]
        gradients = [gradient for parameter in parameters if (gradient := parameter.grad) is not None]
        common: dict[str, Any] = {
            "lr": self._training.learning_rate,
            "weight_decay": self._training.weight_decay,
            "fused": self._fused,
            "foreach": False,
            "maximize": False,
        }
        with torch.no_grad():
            if self._training.optimizer == "adam":
                means, squares = ([self._moments[i][which] for i in moved] for which in (0, 1))
                steps = [self._steps[i] for i in moved]
                betas: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
                adam(parameters, gradients, means, squares, [], steps, amsgrad=False, **betas, **common)
            else:
                buffers, momentum = [self._momentum[i] for i in moved], self._training.momentum
                sgd(parameters, gradients, buffers, momentum=momentum, dampening=0.0, nesterov=False, **common)
                for i, buffer in zip(moved, buffers, strict=True):
                    self._momentum[i] = buffer

    def narrow(self, parameters: Sequence[Tensor]) -> None:
        """Go on with these: the first rows of the parameters so far, each a stack of several models' own."""
        self._parameters, sizes = parameters, list(map(len, parameters))
        self._momentum = [None if own is None else own[:n] for own, n in zip(self._momentum, sizes, strict=True)]
        self._moments = [(mean[:n], square[:n]) for (mean, square), n in zip(self._moments, sizes, strict=False)]


def _fused(parameters: Sequence[Tensor]) -> bool:
    """Return whether fused kernels exist for these; they do the same arithmetic in one call a step."""
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)


def _zeros_like(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format)


def train(
    module: Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    training: Training,
    rng: np.random.Generator,
    objective: Objective = PLAIN,
) -> float:
    """Train a model in place on one client's data, at least one sample; return the mean loss.

    The mean, without weights and terms, is over the samples seen in the last epoch begun, each before its step. `rng`
    shuffles once an epoch, and seeds dropout.

    Source: CLoVE Alg. 1, l. 19 (LocalUpdate), with a fresh optimiser each round as the published code has it.
    """
    if len(x) == 0:
        raise ValueError("training on no samples is not defined: give every client at least one sample.")
    modules.set_mode(module, True)
    batches = _batches(module, len(x), training.batch_size)
    left, in_epoch, passes = training.num_steps(len(batches)), 0, 0
    seen = torch.zeros((), dtype=torch.float64, device=x.device)
    with _computing(module, objective, rng):
        trainable = objective.begin(module, len(x))
        optimizer = PlainOptimizer(trainable, training)
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
                outputs = module(x_batch)
                losses = per_sample_losses(outputs, targets_of(x_batch, y_batch, loss), loss)
                mean = losses.mean()
                value = mean if weights is None else (losses * weights[begin:end]).mean()
                value = objective.beside(value, Batch(module, x_batch, y_batch, outputs))
                value.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
                objective.add_gradients()
                optimizer.step()
                record(mean)
                seen += mean.detach() * len(x_batch)
                in_epoch = end
            passes += in_epoch
            left -= len(batches)
    count(gradients=passes)
    return seen.item() / in_epoch


def steps_of(module: Module, num_samples: int, training: Training) -> int:
    """Return the number of steps that `train` takes."""
    return training.num_steps(len(_batches(module, num_samples, training.batch_size)))


def training_batches(
    module: Module, x: Tensor, y: Tensor, training: Training, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets of each step that `train` takes, in its order; see there."""
    batches = _batches(module, len(x), training.batch_size)
    left = training.num_steps(len(batches))
    modules.torch_seed(rng)
    while left > 0:
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        x_epoch, y_epoch = samples(x, order), y[order]
        yield from ((x_epoch[begin:end], y_epoch[begin:end]) for begin, end in batches[:left])
        left -= len(batches)


@contextmanager
def _computing(module: Module, objective: Objective, rng: np.random.Generator) -> Iterator[None]:
    """Freeze layers, and seed what the module draws; where nothing draws, the seed is drawn and not used."""
    with ExitStack() as stack:
        if modules.draws(module) or objective.terms:
            stack.enter_context(modules.torch_random(rng))
        else:
            modules.torch_seed(rng)
        if objective.frozen:
            stack.enter_context(frozen_layers(module, objective.frozen))
        yield


def samples(x: Tensor, places: Tensor) -> Tensor:
    """Return the samples at some places, ``x[places]``, with the strides that this has; whole samples are copied."""
    if x.is_contiguous():
        return x.index_select(0, places)
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x.permute(0, 2, 3, 1).index_select(0, places).permute(0, 3, 1, 2)
    return x[places]


def _batches(module: Module, num_samples: int, size: int) -> list[tuple[int, int]]:
    """Return begin and end of each batch; a last one of one sample may become part of the one before."""
    starts = list(range(0, num_samples, size))
    if num_samples % size == 1 and len(starts) > 1 and modules.normalises(module):
        starts.pop()
    return list(zip(starts, [*starts[1:], num_samples], strict=True))


def gradient(
    module: Module,
    x: Tensor,
    y: Tensor,
    loss: str,
    batch: int | None,
    rng: np.random.Generator,
    objective: Objective = PLAIN,
    untrained: Collection[str] = (),
    chunk: int = CHUNK,
) -> tuple[dict[str, NDArray[Any]], float]:
    """Return the gradient of the mean loss on `batch` samples, drawn without replacement (None: all), and that loss.

    It has an array for every entry of the state dict: of those in `untrained` the values after the pass, in train
    mode. `chunk` are the samples of one backward pass, so that memory does not grow with the data.

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
    modules.set_mode(module, True)
    parameters = modules.named_parameters(module)
    _drop_gradients(parameters.values())
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    with _computing(module, objective, rng):
        objective.begin(module, num_samples)
        for begin, end in _batches(module, len(x), chunk):
            x_part, y_part = x[begin:end], y[begin:end]
            outputs = module(x_part)
            losses = per_sample_losses(outputs, targets_of(x_part, y_part, loss), loss)
            weighted = losses if weights is None else losses * weights[begin:end]
            value = objective.beside(
                weighted.sum() / len(x), Batch(module, x_part, y_part, outputs), (end - begin) / len(x)
            )
            value.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            total += losses.detach().sum(dtype=torch.float64)
        objective.add_gradients()
    count(gradients=len(x))
    # Tied weights stand in the state dict under each of their names, and the server moves each of them.
    found: dict[str, Tensor] = {}
    for name, value in modules.state_of(module).items():
        grad = parameters[name].grad if name in parameters else None
        if name in untrained:
            found[name] = value.detach().clone()
        else:
            # Not copied: the module lets go of its gradients below.
            found[name] = torch.zeros_like(value) if grad is None else grad
    _drop_gradients(parameters.values())
    *values, summed = modules.on_host(*found.values(), total)
    gradients = {name: value.detach().numpy() for name, value in zip(found, values, strict=True)}
    return gradients, summed.item() / len(x)


def _drop_gradients(parameters: Iterable[Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None
