"""A linear model."""

from math import prod

import torch
from torch import nn

from task.registry import register_model


@register_model("linear")
def linear(input_shape: tuple[int, ...], num_outputs: int, bias: bool = False) -> nn.Module:
    """Flatten the input, then one linear layer; returns (n, num_outputs).

    Parameters
    ----------
    input_shape
        Shape of one input, d entries in all.
    num_outputs
        1 for a regression, the number of classes for a classifier.
    bias
        Whether the layer has one.

    Notes
    -----
    With one output the weights start as a random unit vector of R^d, where the true models of mixed linear
    regression lie as well; otherwise as PyTorch has it.

    Source: CLoVE, App. D.1.1; its Theorem's first models are made orthogonal by ``init=orthonormal``.
    """
    layer = nn.Linear(prod(input_shape), num_outputs, bias=bias)
    if num_outputs == 1:
        with torch.no_grad():
            weights = torch.randn_like(layer.weight)
            layer.weight.copy_(weights / weights.norm())
    return nn.Sequential(nn.Flatten(), layer)
