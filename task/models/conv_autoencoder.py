"""A convolutional autoencoder for colour images with pixels in [0, 1]."""

from itertools import pairwise

from torch import nn

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("conv_autoencoder")
def conv_autoencoder(
    input_shape: tuple[int, ...], num_outputs: int, channels: list[int] | None = None, code: int = 128
) -> nn.Module:
    """Compress an image by convolutions of stride 2 to a code, and back; returns reconstructions (n, d).

    Parameters
    ----------
    input_shape
        (channels, height, width), d entries in all; height and width are halved by each convolution.
    num_outputs
        Not used: the outputs are the inputs' d entries.
    channels
        Output channels of each convolution; [32, 64, 128] by default.
    code
        Width of the code. By default CIFAR-10's images have 712,835 parameters.

    Raises
    ------
    ValueError
        If the inputs are no images, or their sides cannot be halved so often.

    Notes
    -----
    ReLU between the layers but none at the code, and tanh at the end.

    Source: CLoVE, App. C (unsupervised experiments on CIFAR-10); CIFAR10Autoencoder of the published code.
    """
    widths = [32, 64, 128] if channels is None else channels
    if not widths or min(*widths, code) < 1:
        raise ValueError(
            f"task.model_options channels={widths} code={code}: give at least one convolution and positive widths."
        )
    factor = 2 ** len(widths)
    if len(input_shape) != 3 or any(side % factor for side in input_shape[1:]):
        raise ValueError(
            f"model conv_autoencoder needs images (channels, height, width) whose sides are multiples of {factor}, "
            f"but one input has shape {input_shape}. Give fewer task.model_options.channels."
        )
    inner = (widths[-1], input_shape[1] // factor, input_shape[2] // factor)
    size = inner[0] * inner[1] * inner[2]
    encoder: list[nn.Module] = []
    for before, after in pairwise([input_shape[0], *widths]):
        encoder += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    decoder: list[nn.Module] = [nn.Linear(code, size), nn.Unflatten(1, inner)]
    for before, after in pairwise([*reversed(widths), input_shape[0]]):
        decoder += [nn.ConvTranspose2d(before, after, 3, stride=2, padding=1, output_padding=1), nn.ReLU()]
    decoder[-1] = nn.Tanh()
    layers = [*encoder, nn.Flatten(), nn.Linear(size, code), *decoder, nn.Flatten()]
    return with_head(nn.Sequential(*layers), str(len(layers) - 3))
