"""Concept shift: clusters see like images, but name some of them differently."""

from itertools import combinations

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.composed import Change
from florets.task.partitions.shard import Shard, deal_clusters, rows_by_group

# Label swaps of the published code, two a cluster.
PUBLISHED_SWAPS = [[[0, 3], [8, 9]], [[1, 4], [6, 9]], [[1, 2], [3, 6]], [[3, 5], [4, 7]]]
# Samples of each class in a cluster.
TRAIN_PER_LABEL, TEST_PER_LABEL = 1250, 200


def concept_shift(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give every cluster the same number of samples of each class, and swap labels in a way of its own.

    Two pairs of labels trade places: the published ones for up to 4 clusters of 10 classes, else random pairs among
    the first ten classes, no two clusters alike. Clusters, which share no sample, have fewer than the published 1,250
    train and 200 test samples of a class where the smallest class has too few.

    Source: CLoVE, Sec. 5, "Concept shift" (1,000 train and 400 test samples a client).
    """
    if data.y_train.dtype != np.int64:
        raise ValueError("partition concept_shift needs class labels, but the data set's targets are values.")
    train, test = rows_by_group(data)
    transforms = []
    for pairs in _swaps(len(train), num_clusters, rng):
        renamed = np.arange(len(train))
        for a, b in pairs:
            renamed[a], renamed[b] = b, a
        transforms.append(Change(renamed=renamed))
    return deal_clusters(
        _even(train, num_clusters, TRAIN_PER_LABEL, rng),
        _even(test, num_clusters, TEST_PER_LABEL, rng),
        num_clients,
        rng,
        samples_per_client,
        test_samples_per_client,
        transforms,
    )


def _even(rows: list[IntArray], num_clusters: int, per_label: int, rng: np.random.Generator) -> list[IntArray]:
    """Return the rows of each cluster: equally many of every class, no row twice."""
    count = min(per_label, min(len(of_class) for of_class in rows) // num_clusters)
    shuffled = [rng.permutation(of_class) for of_class in rows]
    return [
        np.concatenate([of_class[k * count : (k + 1) * count] for of_class in shuffled]) for k in range(num_clusters)
    ]


def _swaps(num_labels: int, num_clusters: int, rng: np.random.Generator) -> list[list[list[int]]]:
    if num_clusters <= len(PUBLISHED_SWAPS) and num_labels == 10:
        return PUBLISHED_SWAPS[:num_clusters]
    pairs = list(combinations(range(min(num_labels, 10)), 2))
    doubles = [[list(a), list(b)] for a, b in combinations(pairs, 2) if not set(a) & set(b)]
    if len(doubles) < num_clusters:
        raise ValueError(
            f"{num_labels} classes have {len(doubles)} ways to swap two pairs of labels, fewer than "
            f"task.num_clusters={num_clusters}. Lower task.num_clusters."
        )
    return [doubles[i] for i in rng.choice(len(doubles), size=num_clusters, replace=False)]
