"""Optimisers of local training: PyTorch's, and SGD and Adam without its objects.

Making such an object costs more than many a local training. The first one of a process also imports PyTorch's
compiler, 1.2 s of processor time: on a real node Flower starts a new process for every message, so that each round
would pay it on each node.
"""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from florets.task.training.settings import Training

CLASSES: Mapping[str, str] = {
    name.lower(): name
    for name in (
        *("Adam", "SGD", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"),
        "Adafactor",
    )
}
"""Classes of ``torch.optim`` by the names that `train.optimizer` has for them."""

_KEYS = {"lr": "learning_rate", "momentum": "momentum", "weight_decay": "weight_decay"}
"""Parameters of the classes that have keys of `train` of their own."""

_NOT_OFFERED = {"params", *_KEYS, "foreach", "fused", "capturable", "differentiable", "maximize"}
"""Parameters that are no options: they say how a step is computed, or that the loss is to grow."""


class Sgd:
    """Stochastic gradient descent: step by step what a new ``torch.optim.SGD`` does, from the same kernels.

    Parameters
    ----------
    parameters
        What is trained; their gradients are read at each step, and one without gradient stays as it is.
    learning_rate, momentum, weight_decay
        See `florets.task.training.settings.Training`.
    """

    def __init__(
        self, parameters: Sequence[Tensor], learning_rate: float, momentum: float, weight_decay: float
    ) -> None:
        self._parameters = parameters
        self._learning_rate, self._momentum, self._weight_decay = learning_rate, momentum, weight_decay
        self._buffers: list[Tensor | None] = [None] * len(parameters)
        self._fused = _fused(parameters)

    def step(self) -> None:
        """Move the parameters by one step."""
        moved = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        buffers = [self._buffers[i] for i in moved]
        with torch.no_grad():
            sgd(
                [self._parameters[i] for i in moved],
                [g for i in moved if (g := self._parameters[i].grad) is not None],
                buffers,
                lr=self._learning_rate,
                momentum=self._momentum,
                weight_decay=self._weight_decay,
                fused=self._fused,
                foreach=False,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        for i, buffer in zip(moved, buffers, strict=True):
            self._buffers[i] = buffer

    def narrow(self, parameters: Sequence[Tensor]) -> None:
        """Go on with these: the first rows of the parameters so far, each a stack of several models' own."""
        self._parameters = parameters
        self._buffers = [
            None if buffer is None else buffer[: len(p)] for buffer, p in zip(self._buffers, parameters, strict=True)
        ]


class Adam:
    """Adam with PyTorch's default betas and eps: step by step what a new ``torch.optim.Adam`` does.

    Parameters
    ----------
    parameters, learning_rate, weight_decay
        See `Sgd`.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float, weight_decay: float) -> None:
        self._parameters = parameters
        self._learning_rate, self._weight_decay = learning_rate, weight_decay
        self._fused = _fused(parameters)
        # PyTorch keeps the count of steps beside the parameter where the kernel is fused.
        self._steps = [torch.zeros((), device=p.device if self._fused else "cpu") for p in parameters]
        self._means = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in parameters]
        self._squares = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in parameters]

    def step(self) -> None:
        """Move the parameters by one step."""
        moved = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        with torch.no_grad():
            adam(
                [self._parameters[i] for i in moved],
                [g for i in moved if (g := self._parameters[i].grad) is not None],
                [self._means[i] for i in moved],
                [self._squares[i] for i in moved],
                [],
                [self._steps[i] for i in moved],
                lr=self._learning_rate,
                weight_decay=self._weight_decay,
                fused=self._fused,
                foreach=False,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                eps=1e-8,
                maximize=False,
            )

    def narrow(self, parameters: Sequence[Tensor]) -> None:
        """See `Sgd.narrow`."""
        self._parameters = parameters
        self._means = [mean[: len(p)] for mean, p in zip(self._means, parameters, strict=True)]
        self._squares = [square[: len(p)] for square, p in zip(self._squares, parameters, strict=True)]


def clip_rows(parameters: Sequence[Tensor], most: float) -> None:
    """Clip the gradients of a stack of models, each model's own as ``torch.nn.utils.clip_grad_norm_`` does.

    Parameters
    ----------
    parameters
        Row m of each is model m's.
    most
        Largest norm of a model's gradient.
    """
    slopes = [slope for parameter in parameters if (slope := parameter.grad) is not None]
    norms = torch.stack([slope.flatten(1).square().sum(dim=1) for slope in slopes]).sum(dim=0).sqrt()
    factors = (most / (norms + 1e-6)).clamp(max=1.0)
    for slope in slopes:
        slope.mul_(factors.view(-1, *[1] * (slope.dim() - 1)))


def _fused(parameters: Sequence[Tensor]) -> bool:
    # Fused kernels do the same arithmetic in one call a step; they exist for floats on CPU and CUDA.
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)


def torch_optimizer(parameters: Sequence[Tensor], training: Training) -> Optimizer:
    """Return a new one of PyTorch's optimisers, whose class may have no momentum or weight decay.

    Raises
    ------
    ValueError
        If the class takes no such option, or not such a value.
    """
    key, name, options = "train.optimizer_options", training.optimizer, training.optimizer_options
    takes = _parameters(name)
    offered = sorted(takes - _NOT_OFFERED)
    for option, value in options.items():
        if option not in offered:
            near = difflib.get_close_matches(option, offered, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            own = f" It has a key of its own, train.{_KEYS[option]}." if option in _KEYS else ""
            raise ValueError(
                f"{key}.{option}: {CLASSES[name]} has no such option.{own or hint} Its options: "
                f"{', '.join(offered) or 'none'}."
            )
        if not all(isinstance(one, int | float | None) for one in (value if isinstance(value, list) else [value])):
            raise ValueError(f"{key}.{option}={value!r}: must be a number, true, false, null or a list of numbers.")
    keys = {parameter: getattr(training, key) for parameter, key in _KEYS.items() if parameter in takes}
    tuples = {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
    try:
        made: Optimizer = getattr(torch.optim, CLASSES[name])(parameters, **keys, **tuples)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{key}={dict(options)!r}: {CLASSES[name]} refuses its settings ({error}); correct them."
        ) from error
    return made


@cache
def _parameters(name: str) -> frozenset[str]:
    return frozenset(inspect.signature(getattr(torch.optim, CLASSES[name])).parameters)
