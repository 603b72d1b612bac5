"""Holdings of the clients: numbers of samples of each client by label, of its own and of other clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.partitions.changes import Change
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Transform
from florets.task.task import ClientData, Task

IntArray = NDArray[np.int64]

NUM_BINS = 10
"""Values of a regression are counted in tenths of all clients' values, from the lowest to the highest."""
UNCHANGED = "-"


@dataclass(frozen=True)
class Holdings:
    """What the clients of a task hold.

    Parameters
    ----------
    keys
        Of the clients, as a run names them (M).
    clusters
        True clusters (M,), -1 where not known.
    train, test
        Samples of each label on each client (M, C), after what its cluster does to them.
    columns
        Names of the labels, or of the bins of values (C).
    own
        Fraction of a client's train samples that are of its own cluster (M,).
    changes
        What is done to the samples of each cluster, in words, by cluster.
    distinct, repeated
        Rows of the data set that are in a client's train samples, and those of them that are in several clients';
        0 where the nodes have data of their own.
    """

    keys: tuple[str, ...]
    clusters: IntArray
    train: IntArray
    test: IntArray
    columns: tuple[str, ...]
    own: NDArray[np.float64]
    changes: dict[int, str]
    distinct: int = 0
    repeated: int = 0

    @property
    def has_labels(self) -> bool:
        """Whether the columns are labels, and not bins of values."""
        return self.columns[0].isdecimal()

    @property
    def sizes(self) -> IntArray:
        """Train samples of each client (M,)."""
        sizes: IntArray = self.train.sum(axis=1)
        return sizes

    @property
    def fractions(self) -> NDArray[np.float64]:
        """Fraction of each label among a client's train samples (M, C)."""
        return self.train / self.sizes[:, None]

    def skew(self, rows: IntArray | slice, beside: IntArray | slice = slice(None)) -> float:
        """Return how far clients' labels are from those of a group: the mean total variation distance, in [0, 1].

        Parameters
        ----------
        rows
            The clients.
        beside
            The group whose samples, taken together, they are compared with.
        """
        together = self.train[beside].sum(axis=0)
        apart = np.abs(self.fractions[rows] - together / together.sum()).sum(axis=1) / 2
        return float(apart.mean())


def holdings_of(task: Task) -> Holdings:
    """Return what the clients of a task hold that shares out a data set.

    Raises
    ------
    ValueError
        If the task's data or partition cannot be made.
    """
    shards, digits = task.shards, len(str(task.num_clients - 1))
    clients = [task.client(number) for number in range(task.num_clients)]
    train, test, columns = _counted(clients, task.num_outputs)
    rows = [np.concatenate([piece.train for piece in shard.pieces]) for shard in shards]
    holders = np.unique(np.concatenate([np.unique(part) for part in rows]), return_counts=True)[1]
    changes: dict[int, str] = {}
    for piece in (piece for shard in shards for piece in shard.pieces):
        changes.setdefault(piece.cluster, described(piece.transform))
    return Holdings(
        keys=tuple(str(number).zfill(digits) for number in range(len(shards))),
        clusters=np.array([shard.cluster for shard in shards], dtype=np.int64),
        train=train,
        test=test,
        columns=columns,
        own=np.array([len(shard.train) / len(part) for shard, part in zip(shards, rows, strict=True)]),
        changes=dict(sorted(changes.items())),
        distinct=len(holders),
        repeated=int((holders > 1).sum()),
    )


def holdings_of_nodes(tasks: Sequence[Task], nodes: Sequence[dict[str, Any]]) -> Holdings:
    """Return what nodes with data of their own hold.

    Parameters
    ----------
    tasks
        One a node, each with the node's folder.
    nodes
        Their node configs, with ``client-id`` and, where it is known, ``true-cluster``.

    Raises
    ------
    ValueError
        If a node's data cannot be read or do not fit; the text names the node.
    """
    clients = []
    for task, node in zip(tasks, nodes, strict=True):
        try:
            clients.append(task.client(0))
        except ValueError as error:
            raise ValueError(f"client {node['client-id']}: {error}") from error
    train, test, columns = _counted(clients, tasks[0].num_outputs)
    clusters = [int(node.get("true-cluster", UNKNOWN_CLUSTER)) for node in nodes]
    return Holdings(
        keys=tuple(str(node["client-id"]) for node in nodes),
        clusters=np.array(clusters, dtype=np.int64),
        train=train,
        test=test,
        columns=columns,
        own=np.ones(len(nodes)),
        changes=dict.fromkeys(sorted(set(clusters)), UNCHANGED),
    )


def _counted(clients: Sequence[ClientData], num_outputs: int) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """Return the samples of each label on each client, train and test (M, C), and the labels' names."""
    train, test = ([getattr(client, part).numpy() for client in clients] for part in ("y_train", "y_test"))
    if np.issubdtype(train[0].dtype, np.integer):
        names = tuple(str(label) for label in range(num_outputs))
    else:
        edges = np.quantile(np.concatenate(train), np.linspace(0, 1, NUM_BINS + 1)[1:-1])
        train, test = ([np.searchsorted(edges, values) for values in part] for part in (train, test))
        names = tuple(f"{number}/{NUM_BINS}" for number in range(1, NUM_BINS + 1))
    counts = [np.stack([np.bincount(y, minlength=len(names)) for y in part]) for part in (train, test)]
    return counts[0], counts[1], names


def described(transform: Transform | None) -> str:
    """Return in words what a cluster does to its samples."""
    if transform is None:
        return UNCHANGED
    if isinstance(transform, Change):
        return str(transform)
    if isinstance(transform, partial):
        done = transform.func.__name__.lstrip("_")
        return ", ".join([done, *(_given(done, name, value) for name, value in transform.keywords.items())])
    return str(getattr(transform, "__name__", type(transform).__name__))


def _given(done: str, name: str, value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else " ".join(str(value).strip("[]").split())
    return text if name == done else f"{name} {text}"
