"""SGD and Adam without PyTorch's optimiser objects, of which making one costs more than many a local training.

The first one of a process also imports PyTorch's compiler, 1.2 s of processor time: on a real node Flower starts a
new process for every message, so that each round would pay it on each node.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd


class Sgd:
    """Stochastic gradient descent: step by step what a new ``torch.optim.SGD`` does, from the same kernels.

    Parameters
    ----------
    parameters
        What is trained; their gradients are read at each step, and one without gradient stays as it is.
    learning_rate, momentum, weight_decay
        See `florets.task.training.local_update.TrainSettings`.
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


def _fused(parameters: Sequence[Tensor]) -> bool:
    # Fused kernels do the same arithmetic in one call a step; they exist for floats on CPU and CUDA.
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
