"""A multilayer perceptron."""

from itertools import pairwise
from math import prod

from torch import nn

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("mlp")
def mlp(
    input_shape: tuple[int, ...], num_outputs: int, hidden: list[int] | None = None, batch_norm: bool = False
) -> nn.Module:
    """Flatten the input, then linear layers with ReLU between them; returns logits (n, num_outputs).

    Parameters
    ----------
    input_shape
        Shape of one input.
    num_outputs
        Width of the last layer.
    hidden
        Widths of the hidden layers; [64] by default. An empty list gives a linear classifier.
        IFCA's experiments on MNIST use [200].
    batch_norm
        Whether every hidden layer is normalised over the batch before its ReLU.

    Raises
    ------
    ValueError
        If a width is not positive.
    """
    widths = [prod(input_shape), *([64] if hidden is None else hidden), num_outputs]
    if min(widths) < 1:
        raise ValueError(f"task.model_options.hidden={hidden}: every width must be at least 1.")
    layers: list[nn.Module] = [nn.Flatten()]
    for position, (narrow, wide) in enumerate(pairwise(widths)):
        if position > 0:
            layers += [nn.BatchNorm1d(narrow), nn.ReLU()] if batch_norm else [nn.ReLU()]
        layers.append(nn.Linear(narrow, wide))
    return with_head(nn.Sequential(*layers), str(len(layers) - 1))
