"""The convolutional network for CIFAR-10: batch normalisation and dropout."""

from itertools import pairwise

from torch import nn

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("cifar_cnn")
def cifar_cnn(
    input_shape: tuple[int, ...],
    num_outputs: int,
    channels: list[int] | None = None,
    hidden: list[int] | None = None,
    dropout: float = 0.5,
) -> nn.Module:
    """3 x 3 convolutions with batch normalisation, ReLU and 2 x 2 max-pooling, then linear layers; returns logits.

    Parameters
    ----------
    input_shape
        (channels, height, width)
    num_outputs
        Number of classes.
    channels
        Output channels of each convolution; [64, 128, 256, 512] by default.
    hidden
        Widths of the linear layers with ReLU and dropout; [1024, 512] by default, with 4,181,002 parameters on
        CIFAR-10.
    dropout
        Fraction of their outputs that a training step leaves out, in [0, 1).

    Raises
    ------
    ValueError
        If the inputs are no images, too small for the pooling, or an option is out of its range.

    Source: CLoVE, App. C; Cifar10CNN of the published code.
    """
    if len(input_shape) != 3:
        raise ValueError(
            f"model cifar_cnn needs images (channels, height, width), but one input has shape {input_shape}."
        )
    widths = [64, 128, 256, 512] if channels is None else channels
    dense = [1024, 512] if hidden is None else hidden
    if not widths or min(*widths, 1, *dense) < 1 or not 0 <= dropout < 1:
        raise ValueError(
            f"task.model_options channels={widths} hidden={dense} dropout={dropout}: give at least one convolution, "
            "widths of at least 1, and a dropout in [0, 1)."
        )
    height, width = (side // 2 ** len(widths) for side in input_shape[1:])
    if height < 1 or width < 1:
        raise ValueError(
            f"inputs of shape {input_shape} are too small for model cifar_cnn: {len(widths)} poolings leave nothing. "
            "Give fewer task.model_options.channels."
        )
    layers: list[nn.Module] = []
    for before, after in pairwise([input_shape[0], *widths]):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    features = [widths[-1] * height * width, *dense]
    for before, after in pairwise(features):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    layers.append(nn.Linear(features[-1], num_outputs))
    return with_head(nn.Sequential(*layers), str(len(layers) - 1))
