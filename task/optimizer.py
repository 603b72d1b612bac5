"""Adam and SGD for one round of local training, through PyTorch's functional interface.

`torch.optim.Adam(...)` imports PyTorch's compiler at its first use: 1.2 s of processor time and more. On a real node
Flower starts a new process for every message, so that each round would pay it on each node.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd


class LocalOptimizer:
    """A fresh optimiser for one call of local training; steps equal those of `torch.optim` to the bit.

    Parameters
    ----------
    parameters
        The tensors that it moves, by their ``grad``; those without one stay.
    name
        ``adam`` (PyTorch's default betas and eps) or ``sgd``.
    learning_rate, momentum, weight_decay
        As PyTorch has them.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        name: Literal["adam", "sgd"],
        learning_rate: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self._parameters = list(parameters)
        self._name = name
        self._learning_rate, self._momentum, self._weight_decay = learning_rate, momentum, weight_decay
        # Fused kernels do the same arithmetic in one call a step; they exist for floats on CPU and CUDA.
        self._fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in self._parameters)
        # Each parameter's state begins with its first gradient: (first moment, second moment, steps) or (momentum,).
        self._state: dict[int, tuple[Tensor, ...]] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [p for p in self._parameters if p.grad is not None]
        gradients = [p.grad for p in moved if p.grad is not None]
        if not moved:
            return
        if self._name == "adam":
            self._adam(moved, gradients)
        else:
            self._sgd(moved, gradients)

    def _adam(self, moved: list[Tensor], gradients: list[Tensor]) -> None:
        for p in moved:
            if id(p) not in self._state:
                # As torch.optim: the fused kernel wants the count of steps where the parameter lies.
                place = p.device if self._fused else torch.device("cpu")
                first, second = (torch.zeros_like(p, memory_format=torch.preserve_format) for _ in range(2))
                self._state[id(p)] = (first, second, torch.zeros((), dtype=torch.float32, device=place))
        firsts, seconds, counts = zip(*(self._state[id(p)] for p in moved), strict=True)
        adam(
            moved,
            gradients,
            list(firsts),
            list(seconds),
            [],
            list(counts),
            fused=self._fused,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def _sgd(self, moved: list[Tensor], gradients: list[Tensor]) -> None:
        buffers: list[Tensor | None] = [self._state[id(p)][0] if id(p) in self._state else None for p in moved]
        sgd(
            moved,
            gradients,
            buffers,
            fused=self._fused,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=self._learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        # The first step with momentum fills the list with buffers of its own.
        self._state.update({id(p): (buffer,) for p, buffer in zip(moved, buffers, strict=True) if buffer is not None})
