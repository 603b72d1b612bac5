"""Two pure groups of images, upright and upside down, and one whose clients hold a mixture of both."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.rotation import check_images, turned
from florets.task.partitions.shard import Shard, spread
from florets.task.registry import register_partition

GROUPS = 3


@register_partition("rotation_mixture")
def rotation_mixture(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    kappa: float = 0.5,
    test_share: float = 0.3,
) -> list[Shard]:
    """Cut a pool in three parts: one as it is, one turned by 180 degrees, and one each of whose images is either.

    Parameters
    ----------
    data
        A pool (``task.data_options.pooled=true``) of images (n, ..., height, width).
    num_clients
        C, dealt to the three groups as evenly as possible.
    num_clusters
        3: the mixture is the last cluster.
    rng
        Shuffles the pool, turns the mixture's images, and draws each client's test samples.
    kappa
        Probability that an image of the mixture is left as it is; the nearer to 0 or 1, the harder to tell apart.
    test_share
        Share of each client's samples that are its test set.

    Raises
    ------
    ValueError
        If the data are no pool of images, there are not three clusters, or an option is out of its range.

    Source: CFL-GP, Sec. 5.2 (Fig. 3) and App. F.5.2.
    """
    if not data.pooled:
        raise ValueError(
            "partition rotation_mixture splits a pool into train and test samples itself: add "
            "task.data_options.pooled=true (mnist, fashion_mnist, cifar10)."
        )
    check_images(data, "rotation_mixture")
    if num_clusters != GROUPS:
        raise ValueError(f"task.num_clusters={num_clusters}: partition rotation_mixture has {GROUPS} clusters.")
    for name, value in (("kappa", kappa), ("test_share", test_share)):
        if not 0 < value < 1:
            raise ValueError(f"task.partition_options.{name}={value} must be between 0 and 1.")
    upside_down = partial(turned, angle=180.0)
    shards = []
    parts = np.array_split(rng.permutation(len(data.x_train)), GROUPS)
    for cluster, (rows, count) in enumerate(zip(parts, spread(num_clients, GROUPS), strict=True)):
        for mine in np.array_split(rows, count):
            turns = np.full(len(mine), cluster == 1) if cluster < GROUPS - 1 else rng.random(len(mine)) >= kappa
            held = np.arange(len(mine)) < round(test_share * len(mine))
            train, test = (_by_turn(mine, turns, which) for which in (~held, held))
            upright = Shard(cluster, train[0], test[0])
            turned_over = Shard(cluster, train[1], test[1], upside_down)
            if cluster < GROUPS - 1:
                shards.append(turned_over if cluster == 1 else upright)
            else:
                shards.append(Shard(cluster, train[0], test[0], others=(turned_over,)))
    return shards


def _by_turn(rows: IntArray, turns: NDArray[np.bool_], which: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return the upright and the turned ones among some rows, each in order."""
    return np.sort(rows[which & ~turns]), np.sort(rows[which & turns])
