"""A model of a user's own that imports torchvision, which beside a torch of another build fails on its own."""

from torch import nn
from torchvision.ops import MLP


def net(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), MLP(64, [8, num_outputs]))
