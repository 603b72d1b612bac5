"""A model's features, the inputs of its head, and the term that pulls them to class prototypes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.layers import head_or_last
from florets.task.training.losses import CHUNK, count
from florets.task.training.objective import Batch, Term


def features(module: Module, x: Tensor, head_layers: Sequence[str] = ()) -> NDArray[np.float64]:
    """Return the input of the model's head for each sample (n, D); for `head_layers` see `head_or_last`."""
    count(losses=len(x))
    parts = []
    with head_inputs(module, head_layers) as found, torch.inference_mode():
        module.eval()
        for part in x.split(CHUNK):  # type: ignore[no-untyped-call]
            module(part)
            parts.append(taken(found))
    return torch.cat(parts).cpu().numpy().astype(np.float64)


@contextmanager
def head_inputs(module: Module, head_layers: Sequence[str] = ()) -> Iterator[list[Tensor]]:
    """Record what goes into the model's head at each forward pass within the block; see `features` and `taken`."""
    modules = dict(module.named_modules())
    head = head_or_last(module, head_layers)
    found: list[Tensor] = []

    def keep(_: Module, given: tuple[Any, ...]) -> None:
        # Of several layers the one that is called first counts.
        if not found:
            found.append(given[0])

    owners = {name if name in modules else name.rpartition(".")[0] for name in head}
    hooks = [modules[name].register_forward_pre_hook(keep) for name in sorted(owners)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def taken(found: list[Tensor]) -> Tensor:
    """Return the features (n, D) of the pass that was recorded last, and make room for the next one's."""
    if not found:
        raise ValueError("the model never calls its head, so it has no features.")
    return found.pop().flatten(1)


class NearPrototypes(Term):
    """A term lambda times the mean square of (feature - global prototype of the sample's class).

    `prototypes` (P, D) are those of `classes` (P,); samples of other classes add nothing.

    Source: Tan et al. 2022 (FedProto, arXiv 2105.00243), Eq. 7 and the clients' part of Alg. 1.
    """

    def __init__(
        self, weight: float, prototypes: Tensor, classes: Tensor, num_classes: int, found: list[Tensor]
    ) -> None:
        if not weight > 0:
            raise ValueError(f"lambda={weight!r} of a term towards prototypes must be above 0.")
        if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < num_classes:
            raise ValueError(f"prototypes of classes {classes.tolist()}: the task has 0 to {num_classes - 1}.")
        self.weight, self._found = weight, found
        self._prototypes = torch.zeros(num_classes, prototypes.shape[1], device=prototypes.device)
        self._prototypes[classes] = prototypes
        self._known = torch.zeros(num_classes, 1, device=prototypes.device)
        self._known[classes] = 1.0

    def value(self, batch: Batch) -> Tensor:
        """Return the term on one batch."""
        features = taken(self._found)
        if features.shape[1] != self._prototypes.shape[1]:
            raise ValueError(f"prototypes have {self._prototypes.shape[1]} entries, features {features.shape[1]}.")
        away = (features - self._prototypes[batch.y]) * self._known[batch.y]
        return self.weight * away.square().mean()
