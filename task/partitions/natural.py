"""Groups as the data have them: clients are owners such as writers or hospitals, or a class is a cluster."""

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.amounts import cluster_counts
from florets.task.partitions.changes import combinations
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Shard, check_bounds, deal_clusters, rows_by_group
from florets.task.registry import register_partition


@register_partition("natural")
def natural(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    clients_per_cluster: list[int] | None = None,
    angles: list[float] | None = None,
    mirror: bool = False,
    label_shifts: list[int] | None = None,
    label_permutations: int = 1,
    noise: list[float] | None = None,
    blur: list[float] | None = None,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
    least_samples: int = 2,
) -> list[Shard]:
    """Make a client of each owner.

    Parameters
    ----------
    data
        Tells whose each sample is (``task.table.owner`` or ``task.data_options.owner`` of data ``own``).
    num_clients
        Owners that become clients, in the order of their names; of more than that, as many are drawn.
    num_clusters
        0: groups among the owners are not known. Otherwise clusters are made on top, as many as there are
        combinations of changes, with consecutive clients.
    clients_per_cluster, angles, mirror, label_shifts, label_permutations, noise, blur
        See `florets.task.partitions.composed.composed`.
    samples_per_client, test_samples_per_client
        At most so many samples of an owner, drawn; None: all.
    least_samples
        Owners with fewer train samples, or without a test sample, do not become clients.
    """
    if data.owners_train is None or data.owners_test is None:
        raise ValueError(
            "partition natural needs to know whose each sample is, and the data set does not say: with "
            "task.data=own name a table's column as task.table.owner, an archive's array as task.data_options.owner."
        )
    check_bounds(samples_per_client, test_samples_per_client)
    changes = combinations(data, rng, angles, mirror, label_shifts, label_permutations, noise, blur)
    if num_clusters == 0 and (len(changes) > 1 or clients_per_cluster is not None):
        raise ValueError(
            f"task.num_clusters=0 says that clusters are not known, but task.partition_options makes {len(changes)}: "
            f"use task.num_clusters={len(changes)}."
        )
    if num_clusters and num_clusters != len(changes):
        raise ValueError(
            f"task.num_clusters={num_clusters} must be {len(changes)}, the number of combinations of changes in "
            "task.partition_options, or 0 where none are made and groups among the owners are not known."
        )
    names, sizes = np.unique(data.owners_train, return_counts=True)
    large = names[(sizes >= least_samples) & np.isin(names, data.owners_test)]
    if len(large) < num_clients:
        raise ValueError(
            f"num_clients={num_clients}, but of the {len(names)} owners {len(large)} have a test sample and at least "
            f"task.partition_options.least_samples={least_samples} train samples: use num_clients={len(large)}."
        )
    chosen = np.sort(rng.choice(len(large), size=num_clients, replace=False))
    counts = cluster_counts(num_clients, max(num_clusters, 1), clients_per_cluster)
    clusters = np.repeat(np.arange(len(counts)), counts)
    return [
        Shard(
            int(cluster) if num_clusters else UNKNOWN_CLUSTER,
            _rows_of(name, data.owners_train, samples_per_client, rng),
            _rows_of(name, data.owners_test, test_samples_per_client, rng),
            changes[cluster],
            name=str(name),
        )
        for name, cluster in zip(large[chosen], clusters, strict=True)
    ]


def _rows_of(name: str, owners: NDArray[np.str_], most: int | None, rng: np.random.Generator) -> IntArray:
    rows = np.flatnonzero(owners == name)
    return rows if most is None or len(rows) <= most else np.sort(rng.choice(rows, size=most, replace=False))


@register_partition("by_class")
def by_class(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    classes: list[int] | None = None,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give cluster k all samples of class ``classes[k]``.

    Parameters
    ----------
    classes
        One a cluster; the first classes by default.

    Source: CLoVE, Sec. 5 (unsupervised experiments) and App. D.1.1.
    """
    train, test = rows_by_group(data)
    chosen = list(range(num_clusters)) if classes is None else list(classes)
    if len(chosen) != num_clusters or len(set(chosen)) != len(chosen):
        raise ValueError(
            f"task.partition_options.classes={chosen} must name task.num_clusters={num_clusters} different classes."
        )
    if min(chosen) < 0 or max(chosen) >= len(train):
        raise ValueError(
            f"partition by_class needs a class for each of task.num_clusters={num_clusters} clusters, but of the "
            f"classes {chosen} the data set has only 0 to {len(train) - 1}. Lower task.num_clusters."
        )
    return deal_clusters(
        [train[c] for c in chosen],
        [test[c] for c in chosen],
        num_clients,
        rng,
        samples_per_client,
        test_samples_per_client,
    )
