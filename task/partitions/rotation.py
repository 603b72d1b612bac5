"""Feature skew: every cluster sees the images turned by its own angle."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, TargetArray
from florets.task.partitions.shard import Shard, Transform, check_bounds, check_reach, deal, deal_clusters, spread
from florets.task.registry import register_partition


@register_partition("rotation")
def rotation(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    angles: list[float] | None = None,
    split: Literal["shared", "independent", "disjoint"] = "independent",
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Turn the images of cluster k by ``angles[k]`` degrees, counter-clockwise.

    Parameters
    ----------
    data
        Images (n, ..., height, width).
    num_clients, num_clusters
        Clients are spread evenly over the clusters and numbered cluster by cluster.
    rng
        Draws the split.
    angles
        One a cluster; by default the full turn in even steps, 0/90/180/270 for 4 clusters.
        Multiples of 90 are exact quarter turns, others are interpolated linearly with corners filled by 0.
    split
        Which samples a cluster holds. ``shared``: all of them, cut among its clients in the same way in every
        cluster, so that clusters differ by the turn alone. ``independent``: all, cut by a shuffle of its own.
        ``disjoint``: a part of its own, so that no image appears in two clusters.
    samples_per_client, test_samples_per_client
        At most so many samples a client; None: all (for test: the same bound as for train).

    Raises
    ------
    ValueError
        If the data are no images, the angles do not fit, or quarter turns meet images that are not square.

    Notes
    -----
    Deviation: the published code shuffles each copy of the data apart, which is ``independent``, the default
    here; ``shared`` is ours: every cluster has the same samples, so that small data sets go further.

    Source: CLoVE, Sec. 5, "Feature skew"; IFCA, Sec. 6.2 (rotated MNIST).
    """
    turns = [360.0 * k / num_clusters for k in range(num_clusters)] if angles is None else list(angles)
    transforms = turns_of(data, turns, num_clusters, "rotation")
    train_rows = [np.arange(len(data.x_train))] * num_clusters
    test_rows = [np.arange(len(data.x_test))] * num_clusters
    if split == "shared":
        check_bounds(samples_per_client, test_samples_per_client)
        most_test = samples_per_client if test_samples_per_client is None else test_samples_per_client
        counts = spread(num_clients, num_clusters)
        check_reach(train_rows, test_rows, num_clients)
        order, test_order = rng.permutation(len(data.x_train)), rng.permutation(len(data.x_test))
        shards = []
        for cluster, count in enumerate(counts):
            parts = zip(deal(order, count, samples_per_client), deal(test_order, count, most_test), strict=True)
            shards += [Shard(cluster, train, test, transforms[cluster]) for train, test in parts]
        return shards
    if split == "disjoint":
        train_rows = np.array_split(rng.permutation(len(data.x_train)), num_clusters)
        test_rows = np.array_split(rng.permutation(len(data.x_test)), num_clusters)
    return deal_clusters(
        train_rows, test_rows, num_clients, rng, samples_per_client, test_samples_per_client, transforms
    )


def turns_of(data: Dataset, angles: Sequence[float], num_clusters: int, partition: str) -> list[Transform | None]:
    """Return each cluster's turn, None where nothing turns.

    Raises
    ------
    ValueError
        If the data are no images, there is not one angle a cluster, or images that are not square make quarter turns.
    """
    check_images(data, partition)
    if len(angles) != num_clusters:
        raise ValueError(
            f"task.partition_options.angles has length {len(angles)}, but task.num_clusters={num_clusters}: "
            f"give one angle a cluster."
        )
    check_turns(data, angles)
    return [None if angle % 360 == 0 else partial(turned, angle=angle) for angle in angles]


def check_images(data: Dataset, partition: str) -> None:
    """Raise ValueError if the data are no images (n, ..., height, width)."""
    if data.x_train.ndim < 3:
        raise ValueError(
            f"partition {partition} needs images, but one input has shape {data.input_shape}: choose another "
            f"partition."
        )


def check_turns(data: Dataset, angles: Sequence[float]) -> None:
    """Raise ValueError if images that are not square are to make quarter turns."""
    height, width = data.input_shape[-2:]
    if height != width and any(angle % 180 == 90 for angle in angles):
        raise ValueError(f"images of {height} x {width} pixels cannot make quarter turns: use angles 0 and 180.")


def turned(x: FloatArray, y: TargetArray, angle: float, order: Literal[0, 1] = 1) -> tuple[FloatArray, TargetArray]:
    """Turn images (n, ..., height, width) counter-clockwise by `angle` degrees, with corners filled by 0.

    Multiples of 90 are exact quarter turns. For others `order` is that of the interpolation: 0 takes the nearest
    pixel, 1 is linear; both keep pixels within [0, 1].
    """
    if angle % 90 == 0:
        return np.ascontiguousarray(np.rot90(x, round(angle / 90), axes=(-2, -1))), y
    from scipy.ndimage import rotate  # only odd angles need it

    # Axes in this order turn the same way as rot90.
    return np.ascontiguousarray(rotate(x, angle, axes=(-1, -2), reshape=False, order=order)), y
