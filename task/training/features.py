"""A model's features: what goes into its head."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.layers import head_or_last
from florets.task.training.effort import count
from florets.task.training.losses import CHUNK


def features(module: Module, x: Tensor, head_layers: Sequence[str] = ()) -> NDArray[np.float64]:
    """Return the input of the model's head for each sample (n, D), in eval mode.

    Parameters
    ----------
    module
        The model, with its state loaded.
    x
        Inputs (n, ...), on the module's device.
    head_layers
        Name prefixes of the head, see `florets.task.layers.head_or_last`. Of several layers the one that is called
        first counts. A head that is a bare parameter stands for the module that holds it.

    Raises
    ------
    ValueError
        If the forward pass calls no module of the head.
    """
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
    """Return the features (n, D) of the pass that was recorded last, and make room for the next one's.

    Raises
    ------
    ValueError
        If the pass called no module of the head.
    """
    if not found:
        raise ValueError("the model never calls its head: it has no features.")
    return found.pop().flatten(1)
