"""Feature skew without shared samples: each part of a pool is turned by an angle of its own."""

from functools import partial
from typing import Literal

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.partitions.rotation import turned
from florets.task.partitions.shard import Shard
from florets.task.registry import register_partition

_ORDERS: dict[str, Literal[0, 1]] = {"nearest": 0, "linear": 1}


@register_partition("rotation_blocks")
def rotation_blocks(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    angles: list[float] | None = None,
    test_share: float = 0.3,
    interpolation: Literal["nearest", "linear"] = "nearest",
) -> list[Shard]:
    """Cut a pool in file order into one block an angle, deal each block to its clients, and split on each client.

    Parameters
    ----------
    data
        A pool (``task.data_options.pooled=true``) of images (n, ..., height, width).
    num_clients
        C: client c has angle number floor(A c / C) of A.
    num_clusters
        K, a divisor of A: neighbouring angles are one true cluster, A / K of them.
    rng
        Draws each client's test samples.
    angles
        Degrees, counter-clockwise; by default the full turn in K even steps. Multiples of 90 are exact.
    test_share
        Share of each client's samples that are its test set.
    interpolation
        Of angles that are no multiples of 90.

    Raises
    ------
    ValueError
        If the data are no pool of square images, or the angles or the share do not fit.

    Source: CFL-GP, Sec. 5.2 and App. F.5, with 8 angles in 4 clusters, or 4 angles.
    Deviation: no client's samples reach over two blocks, as a few do in its published code where blocks do not divide
    evenly.
    """
    turns = [360.0 * k / num_clusters for k in range(num_clusters)] if angles is None else list(angles)
    _check(data, num_clients, num_clusters, turns, test_share)
    angle_of = np.arange(num_clients) * len(turns) // num_clients
    blocks = np.array_split(np.arange(len(data.x_train)), len(turns))
    shards = []
    for number, (turn, block) in enumerate(zip(turns, blocks, strict=True)):
        transform = None if turn % 360 == 0 else partial(turned, angle=turn, order=_ORDERS[interpolation])
        for rows in np.array_split(block, np.count_nonzero(angle_of == number)):
            mixed = rng.permutation(rows)
            num_test = round(test_share * len(rows))
            cluster = number * num_clusters // len(turns)
            shards.append(Shard(cluster, np.sort(mixed[num_test:]), np.sort(mixed[:num_test]), transform))
    return shards


def _check(data: Dataset, num_clients: int, num_clusters: int, turns: list[float], test_share: float) -> None:
    if not data.pooled:
        raise ValueError(
            "partition rotation_blocks splits a pool into train and test samples itself: add "
            "task.data_options.pooled=true (mnist, fashion_mnist, cifar10)."
        )
    if len(data.input_shape) < 2 or data.input_shape[-1] != data.input_shape[-2]:
        raise ValueError(
            f"partition rotation_blocks needs square images, but one input has shape {data.input_shape}: choose "
            "another partition."
        )
    if len(turns) % num_clusters or not turns:
        raise ValueError(
            f"task.partition_options.angles has length {len(turns)}: neighbouring angles make a cluster, so their "
            f"number must be a multiple of task.num_clusters={num_clusters}."
        )
    if num_clients < len(turns):
        raise ValueError(f"num_clients={num_clients} is less than the {len(turns)} angles: each needs a client.")
    if not 0 < test_share < 1:
        raise ValueError(f"task.partition_options.test_share={test_share} must be between 0 and 1.")
