"""Functions of a user's own: two models, one of which cannot be built, and a partition without groups."""

import numpy as np
import torch
from torch import nn

from florets.task.data.dataset import Dataset
from florets.task.partitions.shard import Shard
from florets.task.task import TaskSpec

SPEC = TaskSpec(
    data="tests.own_functions:mixed_regression",
    partition="tests.own_functions:in_order",
    model="linear",
    loss="squared_error",
    num_clients=4,
    num_clusters=2,
    seed=0,
    data_dir="",
)


def net(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, num_outputs))


def flagged(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    module = net(input_shape, num_outputs)
    module.register_buffer("flag", torch.tensor([True, False]))
    return module


def broken(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    raise TypeError("boom")


def mixed_regression(
    data_dir: object, seed: int, num_clusters: int, d: int = 10, clients: int = 60, n: int = 40, noise: float = 0.1
) -> Dataset:
    """Return y = <x, theta> + noise for clients of n samples each, in client order; true models of length about 2."""
    rng = np.random.default_rng(seed)
    theta = 2 / np.sqrt(d) * rng.standard_normal((num_clusters, d))
    group = np.arange(clients * n) // n % num_clusters
    x = rng.standard_normal((clients * n, d)).astype(np.float32)
    y = np.einsum("nd,nd->n", x, theta[group]) + noise * rng.standard_normal(clients * n)
    return Dataset(
        x, y.astype(np.float32), x[:clients], y[:clients].astype(np.float32), 1, group, group[:clients], theta
    )


def in_order(data: Dataset, num_clients: int, num_clusters: int, rng: np.random.Generator) -> list[Shard]:
    rows = np.array_split(np.arange(len(data.y_train)), num_clients)
    return [Shard(i % num_clusters, part, np.array([i])) for i, part in enumerate(rows)]


def frozen_first(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, num_outputs))
    module[1].requires_grad_(False)
    return module


def from_torchvision(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    from torchvision.ops import MLP

    return nn.Sequential(nn.Flatten(), MLP(64, [8, num_outputs]))
