"""A linear model."""

from math import prod
from typing import Literal

import torch
from torch import nn

from task.registry import register_model


@register_model("linear")
def linear(
    input_shape: tuple[int, ...],
    num_outputs: int,
    bias: bool = False,
    start: Literal["unit", "uniform"] = "unit",
    scale: float = 1.0,
) -> nn.Module:
    """Flatten the input, then one linear layer; returns (n, num_outputs).

    Parameters
    ----------
    input_shape
        Shape of one input, d entries in all.
    num_outputs
        1 for a regression, the number of classes for a classifier.
    bias
        Whether the layer has one.
    start
        How the weights start. ``unit``: with one output as a random unit vector of R^d, where the true models of
        mixed linear regression lie as well; otherwise as PyTorch has it. ``uniform``: U(-scale, scale), and the bias
        0.
    scale
        Of ``uniform``, above 0.

    Raises
    ------
    ValueError
        If `scale` is not positive.

    Source: CLoVE, App. D.1.1; its Theorem's first models are made orthogonal by ``init=orthonormal``. ``uniform``:
    CFL-GP, Sec. 5.1.
    """
    if not scale > 0:
        raise ValueError(f"task.model_options.scale={scale} must be above 0.")
    layer = nn.Linear(prod(input_shape), num_outputs, bias=bias)
    with torch.no_grad():
        if start == "uniform":
            layer.weight.uniform_(-scale, scale)
            if bias:
                layer.bias.zero_()
        elif num_outputs == 1:
            weights = torch.randn_like(layer.weight)
            layer.weight.copy_(weights / weights.norm())
    return nn.Sequential(nn.Flatten(), layer)
