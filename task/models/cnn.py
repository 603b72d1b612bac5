"""The small convolutional network of the image experiments."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("cnn")
def cnn(
    input_shape: tuple[int, ...],
    num_outputs: int,
    channels: list[int] | None = None,
    kernel: int = 5,
    padding: int = 0,
) -> nn.Module:
    """Convolutions, each with ReLU and 2 x 2 max-pooling, then one linear layer; returns logits (n, num_outputs).

    Parameters
    ----------
    input_shape
        (channels, height, width)
    num_outputs
        Number of classes.
    channels
        Output channels of each convolution; [6, 16] by default.
    kernel, padding
        Of every convolution. The defaults, 5 and 0, give the published network of 5,142 parameters on MNIST;
        ``kernel=3 padding=1`` suits the 8 x 8 digits.

    Raises
    ------
    ValueError
        If the inputs are no images, or too small for the convolutions.

    Source: CLoVE, App. C; GenConvNet of the published code.
    """
    if len(input_shape) != 3:
        raise ValueError(f"model cnn needs images (channels, height, width), but one input has shape {input_shape}.")
    widths = [6, 16] if channels is None else channels
    if not widths or min(*widths, kernel) < 1 or padding < 0:
        raise ValueError(
            f"task.model_options channels={widths} kernel={kernel} padding={padding}: give at least one layer, "
            f"channels and kernel at least 1, padding at least 0."
        )
    height, width = input_shape[1:]
    for layer in range(len(widths)):
        height, width = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
        if height < 1 or width < 1:
            raise ValueError(
                f"inputs of shape {input_shape} are too small for model cnn: nothing is left after convolution "
                f"{layer + 1}. Lower task.model_options.kernel or raise .padding, e.g. kernel=3 padding=1."
            )
    return ConvNet([input_shape[0], *widths], kernel, padding, widths[-1] * height * width, num_outputs)


class ConvNet(nn.Module):
    """See `cnn`.

    Parameters
    ----------
    channels
        Input channels, then each convolution's output channels.
    kernel, padding
        Of every convolution.
    num_features, num_outputs
        Of the linear layer.
    """

    def __init__(
        self, channels: Sequence[int], kernel: int, padding: int, num_features: int, num_outputs: int
    ) -> None:
        super().__init__()
        self.padding = padding
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, kernel, padding=padding) for a, b in pairwise(channels))
        self.linear = nn.Linear(num_features, num_outputs)
        with_head(self, "linear")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, num_outputs) of images (n, channels, height, width)."""
        for convolution in self.convolutions:
            x = pool_and_relu(convolution(x))
        return self.linear(x.flatten(1))  # type: ignore[no-any-return]  # torch types module calls as Any


def pool_and_relu(x: Tensor) -> Tensor:
    """Apply 2 x 2 max-pooling and ReLU: the same bits on both ways, each the faster one on a CPU; a GPU pools.

    ReLU after pooling has a quarter of the work. Without gradients, maxima of strided slices beat torch's pooling
    kernel; with gradients, the backward pass of slices costs more than it saves (see benchmarks/bench_losses.py).
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return F.relu(F.max_pool2d(x, 2))
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    rows = torch.maximum(x[..., 0:height:2, :width], x[..., 1:height:2, :width])
    return F.relu(torch.maximum(rows[..., 0::2], rows[..., 1::2]))
