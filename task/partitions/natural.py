"""Groups as the data have them: clients are owners such as writers or hospitals, or a class is a cluster."""

from collections.abc import Sequence

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.composed import LEAST_TRAIN
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Clusters, Shard, check_bounds, dealt, rows_by_group
from florets.task.registry import check_ranges


def natural(data: Dataset, num_clients: int, num_clusters: int, rng: np.random.Generator) -> list[Shard]:
    """Make a client of each owner with at least two train samples and a test sample; groups among them are unknown.

    `num_clients` owners become clients, in the order of their names; of more than that, as many are drawn.
    """
    if data.owners_train is None or data.owners_test is None:
        raise ValueError("partition natural: the data do not say whose each sample is, as task.table.owner does.")
    if num_clusters:
        raise ValueError("partition natural: groups among owners are not known; use task.num_clusters=0.")
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


@dealt
def by_class(data: Dataset, num_clusters: int, rng: np.random.Generator) -> Clusters:
    """Give cluster k all samples of class k.

    Source: CLoVE, Sec. 5 (unsupervised experiments) and App. D.1.1.
    """
    train, test = rows_by_group(data, needed=num_clusters)
    return Clusters(train[:num_clusters], test[:num_clusters])


def random_clusters(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    clients: list[list[int]],
    probabilities: list[float] | None = None,
    test_samples_per_client: int = 10,
) -> list[Shard]:
    """Draw each client's cluster; it gets samples of that group which no other client has.

    `clients` are pairs [number of clients, train samples of each], ``[[900, 10], [20, 50]]``, and `probabilities`
    those of the clusters. The numbers of clients are random: a cluster may have none, or none of the large ones.

    Source: mixed regression, Sec. III (clusters drawn) and V (sizes).
    """
    if any(len(entry) != 2 or min(entry) < 1 for entry in clients) or sum(n for n, _ in clients) != num_clients:
        raise ValueError(
            f"task.partition_options.clients={clients} must be pairs of [number of clients, samples of each], "
            f"such as [[900, 10], [20, 50]], of num_clients={num_clients} clients in all."
        )
    check_bounds(None, test_samples_per_client)
    train, test = rows_by_group(data)
    if len(train) != num_clusters:
        raise ValueError(f"task.num_clusters={num_clusters} must be {len(train)}, the data set's groups.")
    sizes = np.repeat([size for _, size in clients], [count for count, _ in clients])
    fits = probabilities is None or (len(probabilities) == num_clusters and abs(sum(probabilities) - 1) < 1e-9)
    check_ranges("partition", ("probabilities", probabilities, fits, f"{num_clusters} numbers that add up to 1"))
    drawn = rng.choice(num_clusters, size=num_clients, p=probabilities)
    train_parts = _deal(train, drawn, sizes, rng, "train")
    test_parts = _deal(test, drawn, np.full(num_clients, test_samples_per_client), rng, "test")
    return [Shard(int(cluster), a, b) for cluster, a, b in zip(drawn, train_parts, test_parts, strict=True)]


def _deal(
    rows: Sequence[IntArray], drawn: IntArray, sizes: IntArray, rng: np.random.Generator, part: str
) -> list[IntArray]:
    """Shuffle each cluster's rows and cut them for its clients, in the order of the clients."""
    parts: list[IntArray] = [np.empty(0, dtype=np.int64)] * len(drawn)
    for cluster, available in enumerate(rows):
        members = np.flatnonzero(drawn == cluster)
        ends = np.cumsum(sizes[members])
        if len(members) and ends[-1] > len(available):
            raise ValueError(
                f"cluster {cluster} needs {ends[-1]} {part} samples, and has {len(available)}: lower num_clients or "
                "the samples of each in task.partition_options."
            )
        shuffled = rng.permutation(available)
        for member, end in zip(members, ends, strict=True):
            parts[member] = shuffled[end - sizes[member] : end]
    return parts
