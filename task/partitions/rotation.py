"""Feature skew: every cluster sees the images turned by its own angle; by blocks, as mixtures, around anchors."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, FloatArray, IntArray, TargetArray
from florets.task.partitions.shard import Clusters, Shard, Transform, check_bounds, dealt, spread
from florets.task.registry import check_ranges


@dealt
def rotation(
    data: Dataset,
    num_clusters: int,
    rng: np.random.Generator,
    split: Literal["shared", "independent"] = "independent",
) -> Clusters:
    """Turn the images of each cluster, counter-clockwise: the full turn in even steps, 0/90/180/270 for 4 clusters.

    Multiples of 90 are exact quarter turns, others are interpolated linearly with corners filled by 0. By `split` a
    cluster's samples are cut among its clients in the same way in every cluster (``shared``), or by a shuffle of its
    own (``independent``).

    Deviation: the published code shuffles each copy of the data apart, which is ``independent``, the default here;
    ``shared`` is ours: every cluster has the same samples, so that small data sets go further.

    Source: CLoVE, Sec. 5, "Feature skew"; IFCA, Sec. 6.2 (rotated MNIST).
    """
    transforms = turns_of(data, _full_turn(num_clusters), "rotation")
    train_rows = [np.arange(len(data.x_train))] * num_clusters
    test_rows = [np.arange(len(data.x_test))] * num_clusters
    return Clusters(train_rows, test_rows, transforms, alike=split == "shared")


def _full_turn(num_clusters: int) -> list[float]:
    """Return one angle a cluster, in even steps."""
    return [360.0 * k / num_clusters for k in range(num_clusters)]


def turns_of(data: Dataset, angles: Sequence[float], partition: str) -> list[Transform | None]:
    """Return each cluster's turn, None where nothing turns."""
    check_images(data, partition, angles)
    return [None if angle % 360 == 0 else partial(turned, angle=angle) for angle in angles]


def check_images(data: Dataset, partition: str, angles: Sequence[float]) -> None:
    """Refuse data that are no images (n, ..., height, width), or quarter turns of images that are not square."""
    if data.x_train.ndim < 3:
        raise ValueError(f"partition {partition} needs images, but one input has shape {data.input_shape}.")
    height, width = data.input_shape[-2:]
    if height != width and any(angle % 180 == 90 for angle in angles):
        raise ValueError(f"images of {height} x {width} pixels cannot make quarter turns: use angles 0 and 180.")


def turned(x: FloatArray, y: TargetArray, angle: float, order: Literal[0, 1] = 1) -> tuple[FloatArray, TargetArray]:
    """Turn images (n, ..., height, width) counter-clockwise by `angle` degrees, with corners filled by 0.

    Multiples of 90 are exact. For others `order` is that of the interpolation: 0, the nearest pixel, or 1, linear.
    """
    if angle % 90 == 0:
        return np.ascontiguousarray(np.rot90(x, round(angle / 90), axes=(-2, -1))), y
    from scipy.ndimage import rotate  # only odd angles need it

    # Axes in this order turn the same way as rot90.
    return np.ascontiguousarray(rotate(x, angle, axes=(-1, -2), reshape=False, order=order)), y


TEST_SHARE = 0.3
"""Of each client's samples of a pool."""


def rotation_blocks(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    angles: list[float] | None = None,
    clusters: list[int] | None = None,
) -> list[Shard]:
    """Cut a pool in file order into one block an angle, deal each block to its clients, and split on each client.

    Client c of C has angle number floor(A c / C) of A `angles`, by default the full turn in K even steps; multiples
    of 90 are exact, others take the nearest pixel. A / K neighbouring angles are one true cluster, unless `clusters`
    names that of each angle.

    Source: CFL-GP, Sec. 5.2 and App. F.5, with 8 angles in 4 clusters, or 4 angles. Deviation: no client's samples
    reach over two blocks, as a few do in its published code where blocks do not divide evenly.
    """
    turns = _full_turn(num_clusters) if angles is None else list(angles)
    of_block = [number * num_clusters // len(turns) for number in range(len(turns))] if clusters is None else clusters
    _check_pool(data, "rotation_blocks")
    check_images(data, "rotation_blocks", turns)
    fits = len(of_block) == len(turns) and {*of_block} == {*range(num_clusters)}
    rule = f"one of 0 to {num_clusters - 1} for each of the {len(turns)} angles, and each of them once at least"
    check_ranges("partition", ("clusters", of_block, fits, rule))
    if num_clients < len(turns):
        raise ValueError(f"num_clients={num_clients} is less than the {len(turns)} angles: each needs a client.")
    angle_of = np.arange(num_clients) * len(turns) // num_clients
    blocks = np.array_split(np.arange(len(data.x_train)), len(turns))
    shards = []
    for number, (turn, block) in enumerate(zip(turns, blocks, strict=True)):
        transform = None if turn % 360 == 0 else partial(turned, angle=turn, order=0)
        for rows in np.array_split(block, np.count_nonzero(angle_of == number)):
            mixed = rng.permutation(rows)
            num_test = round(TEST_SHARE * len(rows))
            shards.append(Shard(of_block[number], np.sort(mixed[num_test:]), np.sort(mixed[:num_test]), transform))
    return shards


def _check_pool(data: Dataset, partition: str) -> None:
    if not data.pooled:
        raise ValueError(f"partition {partition} splits a pool itself: add task.data_options.pooled=true.")


_TURNS = 3


def rotation_mixture(
    data: Dataset, num_clients: int, num_clusters: int, rng: np.random.Generator, kappa: float = 0.5
) -> list[Shard]:
    """Cut a pool in three parts: one as it is, one turned by 180 degrees, and one each of whose images is either.

    There are 3 clusters, the mixture is the last: with probability `kappa` an image of it is left as it is.

    Source: CFL-GP, Sec. 5.2 (Fig. 3) and App. F.5.2.
    """
    _check_pool(data, "rotation_mixture")
    check_images(data, "rotation_mixture", [180])
    if num_clusters != _TURNS:
        raise ValueError(f"task.num_clusters={num_clusters}: partition rotation_mixture has {_TURNS} clusters.")
    check_ranges("partition", ("kappa", kappa, 0 < kappa < 1, "between 0 and 1"))
    upside_down = partial(turned, angle=180.0)
    shards = []
    parts = np.array_split(rng.permutation(len(data.x_train)), _TURNS)
    for cluster, (rows, count) in enumerate(zip(parts, spread(num_clients, _TURNS), strict=True)):
        for mine in np.array_split(rows, count):
            turns = np.full(len(mine), cluster == 1) if cluster < _TURNS - 1 else rng.random(len(mine)) >= kappa
            held = np.arange(len(mine)) < round(TEST_SHARE * len(mine))
            train, test = (_by_turn(mine, turns, which) for which in (~held, held))
            upright = Shard(cluster, train[0], test[0])
            turned_over = Shard(cluster, train[1], test[1], upside_down)
            if cluster < _TURNS - 1:
                shards.append(turned_over if cluster == 1 else upright)
            else:
                shards.append(Shard(cluster, train[0], test[0], others=(turned_over,)))
    return shards


def _by_turn(rows: IntArray, turns: NDArray[np.bool_], which: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return the upright and the turned ones among some rows, each in order."""
    return np.sort(rows[which & ~turns]), np.sort(rows[which & turns])


def rotated_anchors(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    anchor_samples: int = 20,
    samples_per_client: int = 2,
    test_samples_per_client: int = 10,
) -> list[Shard]:
    """Turn the images of each cluster; clients 0 to K - 1 are the clusters' anchors, with more images.

    Turns are 0, 90, 180 and 270 degrees counter-clockwise for up to 4 clusters, else the full turn in even steps. The
    other clients are spread evenly over the clusters, cluster by cluster. No train image is dealt twice. An anchor
    has the whole test set, so that tests on a cluster's clients are tests on all of the cluster's images.

    Source: mixed regression, Sec. V (MNIST): two images a client, rotated by its cluster's angle.
    """
    transforms = turns_of(data, _full_turn(max(num_clusters, 4))[:num_clusters], "rotated_anchors")
    check_bounds(samples_per_client, test_samples_per_client)
    check_ranges("partition", ("anchor_samples", anchor_samples, anchor_samples >= 1, "at least 1"))
    counts = [count - 1 for count in spread(num_clients, num_clusters)]
    num_test = len(data.x_test)
    of_anchors = num_clusters * anchor_samples
    needed = of_anchors + sum(counts) * samples_per_client
    if needed > len(data.x_train) or test_samples_per_client > num_test:
        raise ValueError(
            f"num_clients={num_clients} need {needed} train images and {test_samples_per_client} test images each, "
            f"but the data have {len(data.x_train)} and {num_test}."
        )
    order, everything = rng.permutation(len(data.x_train)), np.arange(num_test)
    anchors = order[:of_anchors].reshape(num_clusters, -1)
    rows = order[of_anchors:needed].reshape(-1, samples_per_client)
    # A window of one shuffled row holds no image twice, and 25,000 windows are drawn at once.
    windows = rng.integers(num_test, size=(len(rows), 1)) + np.arange(test_samples_per_client)
    test_rows = rng.permutation(num_test)[windows % num_test]
    shards = [Shard(k, anchors[k], everything, transforms[k]) for k in range(num_clusters)]
    clusters = np.repeat(np.arange(num_clusters), counts)
    shards += [
        Shard(int(cluster), train, test, transforms[cluster])
        for cluster, train, test in zip(clusters, rows, test_rows, strict=True)
    ]
    return shards
