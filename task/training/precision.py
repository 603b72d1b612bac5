"""Precision of the forward and backward passes of training; parameters, losses and optimisers stay in float32."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["float32", "bf16"]


def outputs_of(module: Callable[[Tensor], Tensor], x: Tensor, precision: Precision) -> Tensor:
    """Return a model's outputs in float32, computed in bfloat16 where `precision` asks for it and PyTorch can.

    Autocast begins anew at each pass: it keeps the parameters that it has cast, and the next step changes them.
    """
    if precision == "float32":
        return module(x)
    with torch.autocast(x.device.type, torch.bfloat16):
        outputs = module(x)
    return outputs.float()
