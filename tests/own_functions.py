"""Functions of a user's own: two models, one of which cannot be built, and a partition without groups."""

import numpy as np
from torch import nn

from task.data import Dataset
from task.partitions import Shard


def net(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, num_outputs))


def broken(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    raise TypeError("boom")


def anyhow(data: Dataset, num_clients: int, num_clusters: int, rng: np.random.Generator) -> list[Shard]:
    train = np.array_split(rng.permutation(len(data.y_train)), num_clients)
    test = np.array_split(rng.permutation(len(data.y_test)), num_clients)
    return [Shard(0, a, b) for a, b in zip(train, test, strict=True)]
