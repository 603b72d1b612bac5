"""Clients whose number of samples of each label is given: a table with a line for each cluster."""

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.amounts import apportion, cluster_counts
from florets.task.partitions.groups import rows_by_group
from florets.task.partitions.shard import Shard, check_bounds
from florets.task.registry import register_partition


@register_partition("label_counts")
def label_counts(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    counts: list[list[int]] | None = None,
    clients_per_cluster: list[int] | None = None,
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Give every client of cluster k ``counts[k][c]`` train samples of label c, no sample twice.

    Parameters
    ----------
    data
        Its groups are the labels.
    num_clients, num_clusters
        Clients are numbered cluster by cluster.
    rng
        Draws the samples.
    counts
        One line a cluster, with a number for each label of the data set.
    clients_per_cluster
        Number of clients of each cluster; None: spread evenly.
    test_samples_per_client
        Test samples of each client, in the proportions of its train labels (largest remainders) and drawn anew for
        each client, so that two may be tested on one sample; None: in the data set's proportion of test to train.

    Raises
    ------
    ValueError
        If the table does not fit the clusters and labels, or the samples do not reach.

    Source: made for FedPAC (arXiv 2306.11867), whose clients have a part of their samples of all labels alike and the
    rest of three labels, and for Per-FedAvg (arXiv 2002.07948), whose clients are of two kinds.
    Deviation: FedPAC's client i is of group i modulo the number of groups, here clients are numbered group by group.
    """
    train, test = rows_by_group(data)
    per_cluster = cluster_counts(num_clients, num_clusters, clients_per_cluster)
    check_bounds(None, test_samples_per_client)
    wanted = _table(counts, num_clusters, len(train))[np.repeat(np.arange(num_clusters), per_cluster)]
    ends = np.cumsum(wanted, axis=0)
    for label, rows in enumerate(train):
        if ends[-1, label] > len(rows):
            raise ValueError(
                f"task.partition_options.counts asks for {ends[-1, label]} train samples of label {label} over "
                f"num_clients={num_clients} clients, but the data set has {len(rows)}: lower these counts."
            )
    rows_of = [rng.permutation(rows)[: ends[-1, label]] for label, rows in enumerate(train)]
    parts = [np.split(rows, ends[:-1, label]) for label, rows in enumerate(rows_of)]
    share = len(data.x_test) / len(data.x_train)
    shards = []
    for client, mine in enumerate(wanted):
        asked = max(1, round(share * int(mine.sum()))) if test_samples_per_client is None else test_samples_per_client
        shards.append(
            Shard(
                cluster=int(np.searchsorted(np.cumsum(per_cluster), client, side="right")),
                train=np.concatenate([part[client] for part in parts]),
                test=_drawn(client, apportion(asked, mine.astype(np.float64)), test, rng),
            )
        )
    return shards


def _table(counts: list[list[int]] | None, num_clusters: int, num_labels: int) -> IntArray:
    lines = counts or []
    if len(lines) != num_clusters or any(len(line) != num_labels for line in lines):
        given = "" if counts is None else f"={counts}"
        raise ValueError(
            f"task.partition_options.counts{given} must be one list for each of task.num_clusters={num_clusters} "
            f"clusters, with a number for each of the data set's {num_labels} labels."
        )
    if any(count < 0 for line in lines for count in line) or any(sum(line) == 0 for line in lines):
        raise ValueError(
            f"task.partition_options.counts={counts}: numbers must be at least 0, and a line must have one above 0."
        )
    return np.array(lines, dtype=np.int64)


def _drawn(client: int, counts: IntArray, test: list[IntArray], rng: np.random.Generator) -> IntArray:
    for label, (count, rows) in enumerate(zip(counts, test, strict=True)):
        if count > len(rows):
            raise ValueError(
                f"client {client} is to be tested on {count} samples of label {label}, and the test set has "
                f"{len(rows)}: give a lower task.partition_options.test_samples_per_client."
            )
    return np.concatenate(
        [rng.choice(rows, size=n, replace=False) for n, rows in zip(counts, test, strict=True) if n]
    )
