"""Models of a user's own: one with batch normalisation, one that cannot be built."""

from torch import nn


def net(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, num_outputs))


def broken(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    raise TypeError("boom")
