"""A client's share of the data, and the two steps that every partition ends with: spread and deal."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, NamedTuple

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
    """Return the number of clients of each cluster: as even as possible, the first clusters one more."""
    if num_clusters < 1:
        raise ValueError(f"task.num_clusters={num_clusters} must be at least 1.")
    if num_clients < num_clusters:
        raise ValueError(f"num_clients={num_clients} must be at least task.num_clusters={num_clusters}.")
    share, rest = divmod(num_clients, num_clusters)
    return [share + (cluster < rest) for cluster in range(num_clusters)]


def _deal(rows: IntArray, num_clients: int, most: int | None) -> list[IntArray]:
    """Cut a cluster's shuffled rows into one part a client; with `most`, equal ones of at most so many rows."""
    if most is None:
        return list(np.array_split(rows, num_clients))
    # What is left over is not used, as the published code cuts.
    chunk = len(rows) // num_clients
    return [rows[i * chunk : i * chunk + min(chunk, most)] for i in range(num_clients)]


class Clusters(NamedTuple):
    """The rows of each of K clusters, and what is done to its samples; `alike`: all are shuffled in the same way."""

    train: Sequence[IntArray]
    test: Sequence[IntArray]
    transforms: Sequence[Transform | None] | None = None
    alike: bool = False


def dealt(clusters_of: Callable[..., Clusters]) -> Callable[..., list[Shard]]:
    """Make a partition of ``f(data, num_clusters, rng, **options)``, whose rows are dealt to each cluster's clients.

    They are shuffled before. The partition's options are those of the function, and the most samples of a client.
    """

    def partition(
        data: Dataset,
        num_clients: int,
        num_clusters: int,
        rng: np.random.Generator,
        samples_per_client: int | None = None,
        test_samples_per_client: int | None = None,
        **options: Any,
    ) -> list[Shard]:
        train_rows, test_rows, transforms, alike = clusters_of(data, num_clusters, rng, **options)
        counts = spread(num_clients, len(train_rows))
        check_bounds(samples_per_client, test_samples_per_client)
        most_test = samples_per_client if test_samples_per_client is None else test_samples_per_client
        shards: list[Shard] = []
        for cluster, count in enumerate(counts):
            if not (alike and shards):
                train_order, test_order = rng.permutation(train_rows[cluster]), rng.permutation(test_rows[cluster])
            train, test = _deal(train_order, count, samples_per_client), _deal(test_order, count, most_test)
            transform = transforms[cluster] if transforms is not None else None
            shards += [Shard(cluster, a, b, transform) for a, b in zip(train, test, strict=True)]
        return shards

    *common, _ = inspect.signature(partition).parameters.values()
    options = list(inspect.signature(clusters_of).parameters.values())[3:]
    update_wrapper(partition, clusters_of, ("__module__", "__name__", "__qualname__", "__doc__"))
    partition.__signature__ = inspect.Signature([*common, *options])  # type: ignore[attr-defined]  # as functools does
    partition.__annotations__ |= {option.name: option.annotation for option in options}
    return partition


def check_bounds(samples_per_client: int | None, test_samples_per_client: int | None) -> None:
    """Refuse a bound on the number of samples that is not positive."""
    given = {"samples_per_client": samples_per_client, "test_samples_per_client": test_samples_per_client}
    rule = "at least 1, or left out for all samples"
    check_ranges("partition", *((name, value, value is None or value >= 1, rule) for name, value in given.items()))


def check_shards(shards: Sequence[Shard], data: Dataset, num_clients: int) -> None:
    """Check what any partition, a user's own included, must give: a shard a client, with rows that exist."""
    if len(shards) != num_clients:
        raise ValueError(f"the partition gives {len(shards)} shards, and must give num_clients={num_clients}.")
    for client, shard in enumerate(shards):
        for part, available in (("train", len(data.x_train)), ("test", len(data.x_test))):
            rows = _rows(shard, part)
            if len(rows) == 0:
                raise ValueError(
                    f"client {client} (cluster {shard.cluster}) gets no {part} sample: the {part} set's {available} "
                    f"samples are not enough for num_clients={num_clients}. Lower num_clients, {_REUSE}."
                )
            if rows.min() < 0 or rows.max() >= available:
                raise ValueError(f"client {client} is given {part} rows beyond the {available} of the data set.")
    if data.pooled:
        trained, tested = (np.concatenate([_rows(shard, part) for shard in shards]) for part in ("train", "test"))
        if both := len(np.intersect1d(trained, tested)):
            raise ValueError(
                f"{both} rows of the pool are in both a train and a test part: split what each client gets, as "
                "rotation_blocks and composed do."
            )


def _rows(shard: Shard, part: str) -> IntArray:
    """Return a client's rows of all clusters."""
    if not shard.others:
        return shard.train if part == "train" else shard.test
    return np.concatenate([piece.train if part == "train" else piece.test for piece in shard.pieces])


def rows_by_group(data: Dataset, needed: int = 1) -> tuple[list[IntArray], list[IntArray]]:
    """Return, for each group from 0 to the largest, of which so many are needed, its train rows and its test rows."""
    lowest = min(data.group_train.min(), data.group_test.min())
    if lowest < 0:
        raise ValueError(f"group {lowest} is negative: groups (classes) are numbered from 0.")
    num_groups = int(max(data.group_train.max(), data.group_test.max())) + 1
    if num_groups < needed:
        raise ValueError(
            f"the partition needs {needed} classes, but the data set has {num_groups}: lower task.num_clusters."
        )
    train = [np.flatnonzero(data.group_train == group) for group in range(num_groups)]
    test = [np.flatnonzero(data.group_test == group) for group in range(num_groups)]
    for group, (of_train, of_test) in enumerate(zip(train, test, strict=True)):
        if not len(of_train) or not len(of_test):
            raise ValueError(f"class {group} has {len(of_train)} train and {len(of_test)} test samples: give both.")
    return train, test
