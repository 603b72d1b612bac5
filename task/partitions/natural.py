"""Groups as the data have them: clients are owners such as writers or hospitals, or a class is a cluster."""

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.partitions.composed import LEAST_TRAIN
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Shard, deal_clusters, rows_by_group
from florets.task.registry import register_partition


@register_partition("natural")
def natural(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
) -> list[Shard]:
    """Make a client of each owner with at least two train samples and a test sample; groups among them are unknown.

    Parameters
    ----------
    data
        Tells whose each sample is (``task.table.owner`` or ``task.data_options.owner`` of data ``own``).
    num_clients
        Owners that become clients, in the order of their names; of more than that, as many are drawn.
    num_clusters
        0.
    """
    if data.owners_train is None or data.owners_test is None:
        raise ValueError(
            "partition natural needs to know whose each sample is, and the data set does not say: with "
            "task.data=own name a table's column as task.table.owner, an archive's array as task.data_options.owner."
        )
    if num_clusters:
        raise ValueError(
            f"task.num_clusters={num_clusters}: groups among owners are not known; use task.num_clusters=0."
        )
    names, sizes = np.unique(data.owners_train, return_counts=True)
    large = names[(sizes >= LEAST_TRAIN) & np.isin(names, data.owners_test)]
    if len(large) < num_clients:
        raise ValueError(
            f"num_clients={num_clients}, but of the {len(names)} owners {len(large)} have a test sample and at least "
            f"{LEAST_TRAIN} train samples: use num_clients={len(large)}."
        )
    chosen = np.sort(rng.choice(len(large), size=num_clients, replace=False))
    return [
        Shard(
            UNKNOWN_CLUSTER,
            np.flatnonzero(data.owners_train == name),
            np.flatnonzero(data.owners_test == name),
            name=str(name),
        )
        for name in large[chosen]
    ]


@register_partition("by_class")
def by_class(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    samples_per_client: int | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give cluster k all samples of class k.

    Source: CLoVE, Sec. 5 (unsupervised experiments) and App. D.1.1.
    """
    train, test = rows_by_group(data)
    if num_clusters > len(train):
        raise ValueError(
            f"partition by_class needs a class for each of task.num_clusters={num_clusters} clusters, but the data "
            f"set has {len(train)}. Lower task.num_clusters."
        )
    return deal_clusters(
        train[:num_clusters],
        test[:num_clusters],
        num_clients,
        rng,
        samples_per_client,
        test_samples_per_client,
    )
