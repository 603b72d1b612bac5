"""A multilayer perceptron, and a linear model."""

from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import nn

from florets.task.layers import with_head
from florets.task.registry import check_ranges


def mlp(
    input_shape: tuple[int, ...], num_outputs: int, hidden: list[int] | None = None, batch_norm: bool = False
) -> nn.Module:
    """Flatten the input, then linear layers with ReLU between them; returns logits (n, num_outputs).

    `hidden` are the widths of the hidden layers, [64] by default; IFCA's experiments on MNIST use [200]. With
    `batch_norm` each is normalised over the batch before its ReLU.
    """
    widths = [prod(input_shape), *([64] if hidden is None else hidden), num_outputs]
    check_ranges("model", ("hidden", hidden, min(widths) >= 1, "numbers from 1"))
    layers: list[nn.Module] = [nn.Flatten()]
    for position, (narrow, wide) in enumerate(pairwise(widths)):
        if position > 0:
            layers += [nn.BatchNorm1d(narrow), nn.ReLU()] if batch_norm else [nn.ReLU()]
        layers.append(nn.Linear(narrow, wide))
    return with_head(nn.Sequential(*layers), str(len(layers) - 1))


def linear(
    input_shape: tuple[int, ...],
    num_outputs: int,
    bias: bool = False,
    start: Literal["unit", "uniform", "normal", "bernoulli", "torch"] | None = None,
    scale: float = 1.0,
) -> nn.Module:
    """Flatten the input, then one linear layer; returns (n, num_outputs).

    By `start` the weights begin as a random vector of norm 1 (``unit``, usual with one output), on [-scale, scale]
    (``uniform``), as scale / sqrt(d) N(0, I) (``normal``), each 0 or scale by a fair coin (``bernoulli``), or as
    PyTorch has it (``torch``, usual else). But with ``unit`` and ``torch`` a bias begins at 0.

    Source: CLoVE, App. D.1.1; its Theorem's first models are made orthogonal by ``init=orthonormal``. Mixed
    regression, Sec. V. ``uniform``: CFL-GP, Sec. 5.1. ``bernoulli``: IFCA, synthetic data.
    """
    check_ranges("model", ("scale", scale, scale > 0, "above 0"))
    layer = nn.Linear(prod(input_shape), num_outputs, bias=bias)
    how = start or ("unit" if num_outputs == 1 else "torch")
    with torch.no_grad():
        if how == "unit":
            weights = torch.randn_like(layer.weight)
            layer.weight.copy_(weights / weights.norm())
        elif how == "uniform":
            layer.weight.uniform_(-scale, scale)
        elif how == "normal":
            layer.weight.normal_(0, scale / prod(input_shape) ** 0.5)
        elif how == "bernoulli":
            layer.weight.bernoulli_(0.5).mul_(scale)
        if layer.bias is not None and how in ("uniform", "normal", "bernoulli"):
            layer.bias.zero_()
    return with_head(nn.Sequential(nn.Flatten(), layer), "1")
