"""ResNet-18: residual blocks of two convolutions each."""

from torch import Tensor, nn
from torch.nn import functional as F

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("resnet18")
def resnet18(input_shape: tuple[int, ...], num_outputs: int, large_images: bool = False) -> nn.Module:
    """Return ResNet-18; its outputs are logits (n, num_outputs). The linear layer is the head.

    Parameters
    ----------
    input_shape
        (channels, height, width)
    num_outputs
        Number of classes.
    large_images
        False: a first convolution of 3 x 3 that keeps the size, for images of 28 to 64 pixels; 11,173,962 parameters
        on CIFAR-10. True: the first convolution of 7 x 7 and the pooling of the original, which quarter it;
        11,181,642.

    Raises
    ------
    ValueError
        If the inputs are no images.

    Source: He et al., Deep Residual Learning, Table 1 (18 layers); CFL-GP, App. F.7, whose released code has the
    original's first layers on CIFAR-10: ``large_images=true``.
    """
    if len(input_shape) != 3:
        raise ValueError(
            f"model resnet18 needs images (channels, height, width), but one input has shape {input_shape}."
        )
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
