"""Clients with given numbers of samples of each label: from a table, or a few labels each (n-way k-shot)."""

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.amounts import apportion, cluster_counts
from florets.task.partitions.shard import Shard, rows_by_group
from florets.task.registry import check_ranges


def label_counts(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    counts: list[list[int]] | None = None,
    clients_per_cluster: list[int] | None = None,
) -> list[Shard]:
    """Give every client of cluster k ``counts[k][c]`` train samples of label c, no sample twice.

    Test samples are in the data set's proportion of test to train, and in the proportions of a client's train labels
    (largest remainders); they are drawn anew for each client, so that two may be tested on one sample.

    Source: made for FedPAC (arXiv 2306.11867), whose clients have a part of their samples of all labels alike and the
    rest of three labels, and for Per-FedAvg (arXiv 2002.07948), whose clients are of two kinds.
    Deviation: FedPAC's client i is of group i modulo the number of groups, here clients are numbered group by group.
    """
    train, test = rows_by_group(data)
    per_cluster = cluster_counts(num_clients, num_clusters, clients_per_cluster)
    clusters = np.repeat(np.arange(num_clusters), per_cluster)
    wanted = _table(counts, num_clusters, len(train))[clusters]
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
    for client, (cluster, mine) in enumerate(zip(clusters.tolist(), wanted, strict=True)):
        asked = max(1, round(share * int(mine.sum())))
        tests = _drawn(client, apportion(asked, mine.astype(np.float64)), test, rng)
        shards.append(Shard(cluster, np.concatenate([part[client] for part in parts]), tests))
    return shards


def _table(counts: list[list[int]] | None, num_clusters: int, num_labels: int) -> IntArray:
    lines = counts or []
    fits = len(lines) == num_clusters and all(len(a) == num_labels and min(a) >= 0 and any(a) for a in lines)
    rule = f"task.num_clusters={num_clusters} lists of {num_labels} numbers, one for each label"
    check_ranges("partition", ("counts", counts, fits, rule))
    return np.array(lines, dtype=np.int64)


def _drawn(client: int, counts: IntArray, test: list[IntArray], rng: np.random.Generator) -> IntArray:
    for label, (count, rows) in enumerate(zip(counts, test, strict=True)):
        if count > len(rows):
            raise ValueError(f"client {client} needs {count} test samples of label {label}, of {len(rows)}.")
    return np.concatenate(
        [rng.choice(rows, size=n, replace=False) for n, rows in zip(counts, test, strict=True) if n]
    )


def n_way(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    ways: int = 3,
    ways_spread: int = 1,
    shots: int = 100,
    test_shots: int = 15,
) -> list[Shard]:
    """Draw each client's labels, and how many samples it has of each; there are no groups, `num_clusters` must be 1.

    A client's number of labels is uniform from `ways` - `ways_spread` to `ways` + `ways_spread`, but at least 1 and
    at most the data set's; `shots` and `test_shots` are the train and test samples of each of its labels.

    Source: FedProto (arXiv 2105.00243), its heterogeneous clients in n ways and k shots. Deviation: numbers of labels
    are uniform around their mean, where the paper has a standard deviation; two clients may share samples.
    """
    train, test = rows_by_group(data)
    fewest_train, fewest_test = (min(map(len, cells)) for cells in (train, test))
    given = (
        ("ways", ways, 1, len(train), "the data set's labels"),
        ("ways_spread", ways_spread, 0, len(train), "the data set's labels"),
        ("shots", shots, 1, fewest_train, "the smallest label's train samples"),
        ("test_shots", test_shots, 1, fewest_test, "the smallest label's test samples"),
    )
    for name, value, least, most, what in given:
        check_ranges("partition", (name, value, least <= value <= most, f"from {least} to {most} ({what})"))
    if num_clusters != 1:
        raise ValueError(f"task.num_clusters={num_clusters}: clients of the partition n_way form no groups; use 1.")
    shards = []
    for _ in range(num_clients):
        number = int(rng.integers(max(1, ways - ways_spread), min(len(train), ways + ways_spread) + 1))
        labels = rng.choice(len(train), size=number, replace=False)
        mine, tested = (
            np.concatenate([rng.choice(cells[label], size=size, replace=False) for label in labels])
            for cells, size in ((train, shots), (test, test_shots))
        )
        shards.append(Shard(0, mine, tested))
    return shards
