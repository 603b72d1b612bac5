"""Convolutional classifiers: the small one of the image experiments, CIFAR-10's, ResNet-18, and one for texts."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from florets.task.layers import with_head
from florets.task.registry import check_ranges


def cnn(
    input_shape: tuple[int, ...],
    num_outputs: int,
    channels: list[int] | None = None,
    kernel: int = 5,
    padding: int = 0,
) -> nn.Module:
    """Convolutions, each with ReLU and 2 x 2 max-pooling, then one linear layer; returns logits (n, num_outputs).

    By default `channels` are [6, 16], and with a `kernel` of 5 it is the published network of 5,142 parameters on
    MNIST; ``kernel=3 padding=1`` suits the 8 x 8 digits.

    Source: CLoVE, App. C; GenConvNet of the published code.
    """
    _check_images("cnn", input_shape)
    widths = [6, 16] if channels is None else channels
    check_ranges(
        "model",
        ("channels", widths, _are_widths(widths), _WIDTHS),
        ("kernel", kernel, kernel >= 1, "at least 1"),
        ("padding", padding, padding >= 0, "at least 0"),
    )
    height, width = input_shape[1:]
    for _ in widths:
        height, width = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
        if height < 1 or width < 1:
            raise ValueError(
                f"inputs of shape {input_shape} are too small for model cnn: lower task.model_options.kernel or "
                "raise padding, e.g. kernel=3 padding=1."
            )
    return ConvNet([input_shape[0], *widths], kernel, padding, widths[-1] * height * width, num_outputs)


def _check_images(model: str, input_shape: tuple[int, ...]) -> None:
    if len(input_shape) != 3:
        raise ValueError(f"model {model} needs images (channels, height, width), and one is {input_shape}.")


_WIDTHS = "numbers from 1, one or more"


def _are_widths(widths: Sequence[int]) -> bool:
    return bool(widths) and min(widths) >= 1


class ConvNet(nn.Module):
    """See `cnn`; `channels` begin with those of the input, `num_features` go into the linear layer."""

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

    Without gradients, maxima of strided slices beat torch's pooling kernel; with them their backward pass costs more.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return F.relu(F.max_pool2d(x, 2))
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    rows = torch.maximum(x[..., 0:height:2, :width], x[..., 1:height:2, :width])
    return F.relu(torch.maximum(rows[..., 0::2], rows[..., 1::2]))


def cifar_cnn(
    input_shape: tuple[int, ...],
    num_outputs: int,
    channels: list[int] | None = None,
    hidden: list[int] | None = None,
    dropout: float = 0.5,
) -> nn.Module:
    """3 x 3 convolutions with batch normalisation, ReLU and 2 x 2 max-pooling, then linear layers; returns logits.

    By default [64, 128, 256, 512] `channels` and `hidden` layers of [1024, 512] with dropout: 4,181,002 parameters on
    CIFAR-10.

    Source: CLoVE, App. C; Cifar10CNN of the published code.
    """
    _check_images("cifar_cnn", input_shape)
    widths = [64, 128, 256, 512] if channels is None else channels
    dense = [1024, 512] if hidden is None else hidden
    check_ranges(
        "model",
        ("channels", widths, _are_widths(widths), _WIDTHS),
        ("hidden", dense, _are_widths([1, *dense]), "numbers from 1"),
        ("dropout", dropout, 0 <= dropout < 1, "in [0, 1)"),
    )
    height, width = (side // 2 ** len(widths) for side in input_shape[1:])
    if height < 1 or width < 1:
        raise ValueError(f"inputs of shape {input_shape} are too small for so many task.model_options.channels.")
    layers: list[nn.Module] = []
    for before, after in pairwise([input_shape[0], *widths]):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    features = [widths[-1] * height * width, *dense]
    for before, after in pairwise(features):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    layers.append(nn.Linear(features[-1], num_outputs))
    return with_head(nn.Sequential(*layers), str(len(layers) - 1))


def resnet18(input_shape: tuple[int, ...], num_outputs: int, large_images: bool = False) -> nn.Module:
    """Return ResNet-18; its outputs are logits (n, num_outputs). The linear layer is the head.

    For images of 28 to 64 pixels the first convolution keeps the size (11,173,962 parameters on CIFAR-10); with
    `large_images` it and the pooling of the original quarter it (11,181,642).

    Source: He et al., Deep Residual Learning, Table 1 (18 layers); CFL-GP, App. F.7, whose released code has the
    original's first layers on CIFAR-10: ``large_images=true``.
    """
    _check_images("resnet18", input_shape)
    return ResNet(input_shape[0], num_outputs, large_images)


class ResNet(nn.Module):
    """See `resnet18`."""

    def __init__(self, channels: int, num_outputs: int, large_images: bool) -> None:
        super().__init__()
        if large_images:
            first = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        else:
            first = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU())
        if large_images:
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        self.blocks = nn.Sequential()
        before = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            self.blocks.append(Block(before, width, stride))
            self.blocks.append(Block(width, width, 1))
            before = width
        self.linear = nn.Linear(before, num_outputs)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        with_head(self, "linear")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, num_outputs) of images (n, channels, height, width)."""
        features = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return self.linear(features)  # type: ignore[no-any-return]  # torch types module calls as Any


class Block(nn.Module):
    """Two convolutions with batch normalisation, and their input added to what they give."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or before != width:
            self.shortcut.append(nn.Conv2d(before, width, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, width, height / stride, width / stride)."""
        return F.relu(self.convolutions(x) + self.shortcut(x))


def text_cnn(
    input_shape: tuple[int, ...],
    num_outputs: int,
    tokens: int = 20_002,
    embedding: int = 100,
    filters: int = 100,
    kernels: list[int] | None = None,
    dropout: float = 0.8,
) -> nn.Module:
    """Embedding, convolutions of several lengths with ReLU and the maximum over the text, one linear layer; logits.

    A text is (length,) `tokens`, integers from 0 of which 0 pads; by default there are the words of data ``ag_news``
    and 2. Each of the `kernels`, [3, 4, 5] by default, has so many `filters`.

    Source: CLoVE, App. C; TextCNN of the published code.
    Deviation: that code has as many outputs as clusters (6) where the texts have 4 labels, a logarithm of softmax
    more than needed, and 32,000 tokens of which its data use 20,002.
    """
    lengths = [3, 4, 5] if kernels is None else kernels
    if len(input_shape) != 1:
        raise ValueError(f"model text_cnn needs texts of shape (length,), but one input has shape {input_shape}.")
    fits = _are_widths(lengths) and max(lengths) <= input_shape[0]
    rule = f"from 1 to {input_shape[0]}, the length of a text, which task.data_options.length may raise"
    check_ranges(
        "model",
        ("kernels", lengths, fits, rule),
        ("tokens", tokens, tokens >= 1, "at least 1"),
        ("embedding", embedding, embedding >= 1, "at least 1"),
        ("filters", filters, filters >= 1, "at least 1"),
        ("dropout", dropout, 0 <= dropout < 1, "in [0, 1)"),
    )
    return TextCnn(tokens, embedding, filters, lengths, dropout, num_outputs)


class TextCnn(nn.Module):
    """See `text_cnn`."""

    def __init__(
        self, tokens: int, embedding: int, filters: int, kernels: Sequence[int], dropout: float, num_outputs: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, kernel) for kernel in kernels)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(filters * len(kernels), num_outputs)
        with_head(self, "linear")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, num_outputs) of tokens (n, length), which come as float32."""
        found = x.long()
        # A question about values has no place in an exported program, whose embedding refuses the token as well.
        if not torch.compiler.is_exporting() and len(found) and int(found.max()) >= self.embedding.num_embeddings:
            raise ValueError(f"a text has token {int(found.max())}: task.model_options.tokens must be larger.")
        embedded = self.embedding(found).transpose(1, 2)
        # The maximum first: ReLU then has a length-th of the work, and the same result.
        features = [torch.relu(convolution(embedded).amax(dim=2)) for convolution in self.convolutions]
        return self.linear(self.dropout(torch.cat(features, dim=1)))  # type: ignore[no-any-return]  # torch's Any
