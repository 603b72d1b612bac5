"""Clients of different sizes, each of a cluster drawn at random."""

from collections.abc import Sequence

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.partitions.shard import Shard, check_bounds, rows_by_group
from florets.task.registry import register_partition


@register_partition("random_clusters")
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

    Parameters
    ----------
    clients
        Pairs [number of clients, train samples of each], such as ``[[900, 10], [20, 50]]``; clients are numbered in
        this order.
    probabilities
        Of the clusters, one each, adding up to 1; None: all alike.
    test_samples_per_client
        Test samples of each client.

    Notes
    -----
    The numbers of clients are random: a cluster may have none, or none of the large ones.

    Source: mixed regression, Sec. III (clusters drawn) and V (sizes).
    """
    if any(len(entry) != 2 or min(entry) < 1 for entry in clients):
        raise ValueError(
            f"task.partition_options.clients={clients} must be pairs of [number of clients, samples of each], "
            f"both at least 1, such as [[900, 10], [20, 50]]."
        )
    total = sum(count for count, _ in clients)
    if total != num_clients:
        raise ValueError(
            f"task.partition_options.clients={clients} are {total} clients, but num_clients={num_clients}: use "
            f"num_clients={total}, or task.partition_options.clients={_scaled(clients, num_clients)}."
        )
    check_bounds(None, test_samples_per_client)
    train, test = rows_by_group(data)
    if len(train) != num_clusters:
        raise ValueError(
            f"partition random_clusters makes every group a cluster: the data have {len(train)} groups, but "
            f"task.num_clusters={num_clusters}."
        )
    sizes = np.repeat([size for _, size in clients], [count for count, _ in clients])
    drawn = rng.choice(num_clusters, size=num_clients, p=_checked(probabilities, num_clusters))
    train_parts = _deal(train, drawn, sizes, rng, "train")
    test_parts = _deal(test, drawn, np.full(num_clients, test_samples_per_client), rng, "test")
    return [Shard(int(cluster), a, b) for cluster, a, b in zip(drawn, train_parts, test_parts, strict=True)]


def _scaled(clients: list[list[int]], num_clients: int) -> str:
    """Return, as it is typed, a list of `num_clients` clients in about the same shares, at least one of each size."""
    total = sum(count for count, _ in clients)
    counts = [max(1, count * num_clients // total) for count, _ in clients[:num_clients]]
    while sum(counts) > num_clients:
        counts[int(np.argmax(counts))] -= 1
    counts[int(np.argmax(counts))] += num_clients - sum(counts)
    return "[" + ",".join(f"[{count},{size}]" for count, (_, size) in zip(counts, clients, strict=False)) + "]"


def _checked(probabilities: list[float] | None, num_clusters: int) -> list[float] | None:
    if probabilities is None:
        return None
    if len(probabilities) != num_clusters or min(probabilities) < 0 or abs(sum(probabilities) - 1) > 1e-9:
        raise ValueError(
            f"task.partition_options.probabilities={probabilities} must be one share for each of "
            f"task.num_clusters={num_clusters} clusters, at least 0 and adding up to 1."
        )
    return probabilities


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
                f"the {len(members)} clients drawn for cluster {cluster} need {ends[-1]} {part} samples, but it has "
                f"{len(available)}: raise task.data_options.samples_per_cluster, or ask for fewer samples."
            )
        shuffled = rng.permutation(available)
        for member, end in zip(members, ends, strict=True):
            parts[member] = shuffled[end - sizes[member] : end]
    return parts
