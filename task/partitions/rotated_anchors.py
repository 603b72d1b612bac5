"""Turned images among very many clients of a few images each, and one larger client a cluster."""

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.partitions.rotation import turns_of
from florets.task.partitions.shard import Shard, check_bounds, spread
from florets.task.registry import register_partition


@register_partition("rotated_anchors")
def rotated_anchors(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    anchor_samples: int = 20,
    samples_per_client: int = 2,
    angles: list[float] | None = None,
    test_samples_per_client: int = 10,
) -> list[Shard]:
    """Turn the images of cluster k by ``angles[k]`` degrees; clients 0 to K - 1 are the clusters' anchors.

    Parameters
    ----------
    data
        Images (n, ..., height, width).
    num_clients, num_clusters
        K clients are anchors, one a cluster; the others are spread evenly over the clusters, cluster by cluster.
    rng
        Draws the images.
    anchor_samples, samples_per_client
        Train images of an anchor and of every other client. No image is dealt twice.
    angles
        One a cluster, counter-clockwise. By default quarter turns 0, 90, 180, 270 for up to 4 clusters, else the full
        turn in even steps.
    test_samples_per_client
        Test images of every client that is no anchor, drawn anew for each. An anchor has the whole test set, so that
        tests on a cluster's clients are tests on all of the cluster's images.

    Raises
    ------
    ValueError
        If the data are no images or too few, or the angles do not fit.

    Source: mixed regression, Sec. V (MNIST): two images a client, rotated by its cluster's angle.
    """
    if angles is None:
        step = 90.0 if num_clusters <= 4 else 360.0 / num_clusters
        angles = [step * k for k in range(num_clusters)]
    transforms = turns_of(data, angles, num_clusters, "rotated_anchors")
    check_bounds(samples_per_client, test_samples_per_client)
    if anchor_samples < 1:
        raise ValueError(f"task.partition_options.anchor_samples={anchor_samples} must be at least 1.")
    counts = [count - 1 for count in spread(num_clients, num_clusters)]
    num_test = len(data.x_test)
    of_anchors = num_clusters * anchor_samples
    needed = of_anchors + sum(counts) * samples_per_client
    if needed > len(data.x_train) or test_samples_per_client > num_test:
        raise ValueError(
            f"num_clients={num_clients} need {needed} train images and {test_samples_per_client} test images each, "
            f"but the data have {len(data.x_train)} and {num_test}: lower num_clients or the samples per client."
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
