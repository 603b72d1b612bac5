"""Autoencoders: fully connected, convolutional, and that for channel states of a radio link."""

from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from florets.task.layers import with_head
from florets.task.registry import check_ranges


def autoencoder(input_shape: tuple[int, ...], num_outputs: int, bottleneck: int | None = None) -> nn.Module:
    """Compress d pixels to a `bottleneck` m, a quarter by default, and back; returns reconstructions (n, d).

    Layers are d -> 4m -> 2m -> m -> 2m -> 4m -> d with ReLU between them, none at the code, and a sigmoid at the end;
    on MNIST they have 2,000,964 parameters.

    Source: CLoVE, App. C (unsupervised experiments).
    """
    d = prod(input_shape)
    m = d // 4 if bottleneck is None else bottleneck
    check_ranges("model", ("bottleneck", m, m >= 1, "at least 1"))
    layers = nn.Sequential(
        nn.Flatten(),
        nn.Linear(d, 4 * m),
        nn.ReLU(),
        nn.Linear(4 * m, 2 * m),
        nn.ReLU(),
        nn.Linear(2 * m, m),
        nn.Linear(m, 2 * m),
        nn.ReLU(),
        nn.Linear(2 * m, 4 * m),
        nn.ReLU(),
        nn.Linear(4 * m, d),
        nn.Sigmoid(),
    )
    return with_head(layers, "10")


def conv_autoencoder(
    input_shape: tuple[int, ...], num_outputs: int, channels: list[int] | None = None, code: int = 128
) -> nn.Module:
    """Compress an image by convolutions of stride 2 to a code, and back; returns reconstructions (n, d).

    Each of the `channels`, [32, 64, 128] by default, halves height and width. ReLU between the layers but none at the
    code, and tanh at the end; by default CIFAR-10's images have 712,835 parameters.

    Source: CLoVE, App. C (unsupervised experiments on CIFAR-10); CIFAR10Autoencoder of the published code.
    """
    widths = [32, 64, 128] if channels is None else channels
    check_ranges(
        "model",
        ("channels", widths, bool(widths) and min(widths) >= 1, "numbers from 1, one or more"),
        ("code", code, code >= 1, "at least 1"),
    )
    factor = 2 ** len(widths)
    if len(input_shape) != 3 or any(side % factor for side in input_shape[1:]):
        raise ValueError(f"model conv_autoencoder needs images with sides of multiples of {factor}: {input_shape}.")
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


_SLOPE = 0.3


def csi_autoencoder(input_shape: tuple[int, ...], num_outputs: int, code: int = 1024) -> nn.Module:
    """Compress a state of two channels (real and imaginary part) to a code, and back; returns reconstructions (n, d).

    The `code` has d / 2 entries in the paper on COST2100. ``strategy.shared_layers=[encoder]`` is the encoder that
    the paper's clients share.

    Source: CFL-GP, App. F.6. Deviation: its last leaky ReLU is left out, because inputs that are moved to 0 are
    negative as often as positive.
    """
    if len(input_shape) != 3 or input_shape[0] != 2:
        raise ValueError(f"model csi_autoencoder needs inputs (2, height, width), and one has shape {input_shape}.")
    check_ranges("model", ("code", code, code >= 1, "at least 1"))
    return CsiAutoencoder(input_shape[1], input_shape[2], code)


class CsiAutoencoder(nn.Module):
    """See `csi_autoencoder`."""

    def __init__(self, height: int, width: int, code: int) -> None:
        super().__init__()
        d = 2 * height * width
        self.encoder = nn.Sequential(Inception(), nn.Flatten(), nn.Linear(d, code))
        self.decoder = nn.Sequential(
            nn.Linear(code, d),
            nn.Unflatten(1, (2, height, width)),
            _layer(2, 2, 5, 5),
            *(Refinement(channels) for channels in (9, 7, 5)),
        )
        for part in self.modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(part.weight)
        with_head(self, "decoder")

    def forward(self, x: Tensor) -> Tensor:
        """Return reconstructions (n, d) of states (n, 2, height, width)."""
        return self.decoder(self.encoder(x)).flatten(1)  # type: ignore[no-any-return]  # torch types calls as Any


class Inception(nn.Module):
    """Three ways from the input's two channels to two each, joined and mixed to two."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            nn.Sequential(*(_layer(2, 2, *size) for size in sizes))
            for sizes in (((3, 3), (1, 9), (9, 1)), ((3, 3),), ((3, 3), (1, 3), (3, 1)))
        )
        self.mixed = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, 2, height, width)."""
        return self.mixed(torch.cat([way(x) for way in self.ways], dim=1))  # type: ignore[no-any-return]  # torch's Any


class Refinement(nn.Module):
    """Two ways from two channels to `channels` each, mixed to two and added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            [
                nn.Sequential(
                    _layer(2, channels, 3, 3), _layer(channels, channels, 1, 9), _layer(channels, channels, 9, 1)
                ),
                nn.Sequential(_layer(2, channels, 1, 5), _layer(channels, channels, 5, 1)),
            ]
        )
        self.mixed = nn.Conv2d(2 * channels, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return refined states (n, 2, height, width)."""
        return x + self.mixed(torch.cat([way(x) for way in self.ways], dim=1))  # type: ignore[no-any-return]  # torch's


def _layer(before: int, after: int, height: int, width: int) -> nn.Module:
    """Return a convolution that keeps the size, with batch normalisation and leaky ReLU."""
    return nn.Sequential(
        nn.Conv2d(before, after, (height, width), padding=(height // 2, width // 2)),
        nn.BatchNorm2d(after),
        nn.LeakyReLU(_SLOPE),
    )
