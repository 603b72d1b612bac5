"""A model's features: what goes into its head."""

from collections.abc import Sequence
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
    modules = dict(module.named_modules())
    head = head_or_last(module, head_layers)
    owners = {name if name in modules else name.rpartition(".")[0] for name in head}
    found: list[Tensor] = []

    def keep(_: Module, given: tuple[Any, ...]) -> None:
        if not found:
            found.append(given[0])

    hooks = [modules[name].register_forward_pre_hook(keep) for name in sorted(owners)]
    count(losses=len(x))
    parts = []
    try:
        with torch.inference_mode():
            module.eval()
            for part in x.split(CHUNK):  # type: ignore[no-untyped-call]
                found.clear()
                module(part)
                if not found:
                    raise ValueError(f"the model never calls its head {', '.join(head)}: it has no features.")
                parts.append(found[0].flatten(1))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(parts).cpu().numpy().astype(np.float64)
