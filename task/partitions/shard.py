"""A client's share of the data, and the two steps that every partition ends with: spread and deal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, IntArray, TargetArray
from florets.task.registry import check_ranges

Transform = Callable[[FloatArray, TargetArray], tuple[FloatArray, TargetArray]]

_REUSE = (
    "or let clients hold the same samples: task.partition=composed with task.partition_options.reuse=clients and "
    "samples_per_client"
)


@dataclass(frozen=True)
class Shard:
    """The data of one client: rows of the data set, and what is done to them.

    Parameters
    ----------
    cluster
        True cluster, from 0.
    train, test
        Row numbers, int64 (n,), of the data set's train and test part.
    transform
        Maps inputs (n, *input_shape) and targets (n,) of the client, train and test alike; None leaves them.
    others
        Where a client mixes clusters: its rows of the other clusters, a piece for each, without pieces of their own.
    name
        Of the client where the data have one for it, such as an owner's; empty: it is called by its number.
    """

    cluster: int
    train: IntArray
    test: IntArray
    transform: Transform | None = None
    others: tuple["Shard", ...] = ()
    name: str = ""

    @property
    def pieces(self) -> tuple["Shard", ...]:
        """The client's data cluster by cluster, those of its own cluster first."""
        return (self, *self.others)


def spread(num_clients: int, num_clusters: int) -> list[int]:
    """Return the number of clients of each cluster: as even as possible, the first clusters one more.

    Raises
    ------
    ValueError
        If a cluster would have no client.
    """
    if num_clusters < 1:
        raise ValueError(f"task.num_clusters={num_clusters} must be at least 1.")
    if num_clients < num_clusters:
        raise ValueError(
            f"num_clients={num_clients} is less than task.num_clusters={num_clusters}: a cluster would have "
            f"no client. Raise num_clients or lower task.num_clusters."
        )
    share, rest = divmod(num_clients, num_clusters)
    return [share + (cluster < rest) for cluster in range(num_clusters)]


def deal(rows: IntArray, num_clients: int, most: int | None) -> list[IntArray]:
    """Cut a cluster's rows, already shuffled, into one part for each of its clients.

    With `most`, the parts are equal, at most `most` rows each, and what is left over is not used (as the
    published code cuts). Without it, all rows are used and parts differ by one at most.
    """
    if most is None:
        return list(np.array_split(rows, num_clients))
    chunk = len(rows) // num_clients
    return [rows[i * chunk : i * chunk + min(chunk, most)] for i in range(num_clients)]


def deal_clusters(
    train_rows: Sequence[IntArray],
    test_rows: Sequence[IntArray],
    num_clients: int,
    rng: np.random.Generator,
    samples_per_client: int | None,
    test_samples_per_client: int | None,
    transforms: Sequence[Transform | None] | None = None,
    alike: bool = False,
) -> list[Shard]:
    """Shuffle the rows of each cluster and deal them to its clients, which get consecutive ids.

    Parameters
    ----------
    train_rows, test_rows
        Rows of each cluster, K arrays each.
    num_clients
        Clients of all clusters together, spread evenly.
    rng
        Shuffles.
    samples_per_client
        At most so many train samples a client; None: all of the cluster's.
    test_samples_per_client
        Likewise for test samples; None: the same bound as for train (as the published code does).
    transforms
        What is done to the data of each cluster.
    alike
        Whether one shuffle serves all clusters, whose rows must then be equal.
    """
    counts = spread(num_clients, len(train_rows))
    check_bounds(samples_per_client, test_samples_per_client)
    most_test = samples_per_client if test_samples_per_client is None else test_samples_per_client
    shards: list[Shard] = []
    for cluster, count in enumerate(counts):
        if not (alike and shards):
            train_order, test_order = rng.permutation(train_rows[cluster]), rng.permutation(test_rows[cluster])
        train, test = deal(train_order, count, samples_per_client), deal(test_order, count, most_test)
        transform = transforms[cluster] if transforms is not None else None
        shards += [Shard(cluster, a, b, transform) for a, b in zip(train, test, strict=True)]
    return shards


def check_bounds(samples_per_client: int | None, test_samples_per_client: int | None) -> None:
    """Raise ValueError if a bound on the number of samples is not positive."""
    given = {"samples_per_client": samples_per_client, "test_samples_per_client": test_samples_per_client}
    rule = "at least 1, or left out for all samples"
    check_ranges("partition", *((name, value, value is None or value >= 1, rule) for name, value in given.items()))


def check_shards(shards: Sequence[Shard], data: Dataset, num_clients: int) -> None:
    """Check what any partition, a user's own included, must give.

    Raises
    ------
    ValueError
        If there is not one shard a client, a client has no train or no test sample, a row does not exist, or a row
        of a pool without a split of its own is trained on and tested on.
    """
    if len(shards) != num_clients:
        raise ValueError(
            f"the partition gives {len(shards)} shards for num_clients={num_clients}: give one a client."
        )
    for client, shard in enumerate(shards):
        for part, available in (("train", len(data.x_train)), ("test", len(data.x_test))):
            rows = _rows(shard, part)
            if len(rows) == 0:
                raise ValueError(
                    f"client {client} (cluster {shard.cluster}) gets no {part} sample: the {part} set's {available} "
                    f"samples are not enough for num_clients={num_clients}. Lower num_clients, {_REUSE}."
                )
            if rows.min() < 0 or rows.max() >= available:
                raise ValueError(
                    f"client {client} is given {part} rows {rows.min()} to {rows.max()}, but the {part} set "
                    f"has {available} rows: the partition must give rows of its own data set."
                )
    if data.pooled:
        trained = np.unique(np.concatenate([_rows(shard, "train") for shard in shards]))
        both = np.intersect1d(trained, np.concatenate([_rows(shard, "test") for shard in shards]))
        if len(both):
            raise ValueError(
                f"{len(both)} rows of the pool are in a train and in a test part: with task.data_options.pooled=true "
                "the partition must split what each client gets, as rotation_blocks and composed do."
            )


def _rows(shard: Shard, part: str) -> IntArray:
    """Return a client's rows of all clusters."""
    if not shard.others:
        return shard.train if part == "train" else shard.test
    return np.concatenate([piece.train if part == "train" else piece.test for piece in shard.pieces])


def rows_by_group(data: Dataset) -> tuple[list[IntArray], list[IntArray]]:
    """Return, for each group from 0 to the largest, its rows of the train set and of the test set."""
    lowest = min(data.group_train.min(), data.group_test.min())
    if lowest < 0:
        raise ValueError(f"group {lowest} is negative: groups (classes) are numbered from 0.")
    num_groups = int(max(data.group_train.max(), data.group_test.max())) + 1
    train = [np.flatnonzero(data.group_train == group) for group in range(num_groups)]
    test = [np.flatnonzero(data.group_test == group) for group in range(num_groups)]
    for group in range(num_groups):
        if not len(train[group]) or not len(test[group]):
            raise ValueError(
                f"class {group} has {len(train[group])} train and {len(test[group])} test samples: partitions by "
                f"class need both of every class."
            )
    return train, test
