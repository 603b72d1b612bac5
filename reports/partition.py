"""Holdings of the clients: numbers of samples of each client by label, with their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.partitions.composed import Change
from florets.task.partitions.own import UNKNOWN_CLUSTER
from florets.task.partitions.shard import Transform
from florets.task.task import ClientData, Task

IntArray = NDArray[np.int64]

NUM_BINS = 10
"""Values of a regression are counted in tenths of all clients' values, from the lowest to the highest."""
UNCHANGED = "-"


@dataclass(frozen=True)
class Holdings:
    """What the M clients of a task hold of C labels, or of C bins of values."""

    clusters: IntArray
    """True clusters (M,), -1 where not known."""
    train: IntArray
    """Samples of each label on each client (M, C), after what its cluster does to them."""
    test: IntArray
    columns: tuple[str, ...]
    """Names of the labels, or of the bins."""
    changes: Mapping[int, str]
    """What is done to the samples of each cluster, in words; nothing where a cluster is missing."""

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

    def skew(self, rows: IntArray | slice, group: IntArray | slice = slice(None)) -> float:
        """Return how far clients' labels are from those of a group taken together: mean total variation distance."""
        together = self.train[group].sum(axis=0)
        apart = np.abs(self.fractions[rows] - together / together.sum()).sum(axis=1) / 2
        return float(apart.mean())


def holdings_of(task: Task) -> Holdings:
    """Return what the clients of a task hold that shares out a data set."""
    clients = [task.client(number) for number in range(task.num_clients)]
    pieces = [piece for shard in task.shards for piece in shard.pieces]
    changes = {piece.cluster: described(piece.transform) for piece in pieces}
    return _counted(clients, task.num_outputs, [shard.cluster for shard in task.shards], changes)


def holdings_of_nodes(tasks: Sequence[Task], nodes: Sequence[dict[str, Any]]) -> Holdings:
    """Return what nodes with data of their own hold, given a task for each and its node config."""
    clients = []
    for task, node in zip(tasks, nodes, strict=True):
        try:
            clients.append(task.client(0))
        except ValueError as error:
            raise ValueError(f"client {node['client-id']}: {error}") from None
    clusters = [int(node.get("true-cluster", UNKNOWN_CLUSTER)) for node in nodes]
    return _counted(clients, tasks[0].num_outputs, clusters, {})


def _counted(
    clients: Sequence[ClientData], num_outputs: int, clusters: Sequence[int], changes: Mapping[int, str]
) -> Holdings:
    train, test = ([getattr(client, part).numpy() for client in clients] for part in ("y_train", "y_test"))
    if np.issubdtype(train[0].dtype, np.integer):
        names = tuple(str(label) for label in range(num_outputs))
    else:
        edges = np.quantile(np.concatenate(train), np.linspace(0, 1, NUM_BINS + 1)[1:-1])
        train, test = ([np.searchsorted(edges, values) for values in part] for part in (train, test))
        names = tuple(f"{number}/{NUM_BINS}" for number in range(1, NUM_BINS + 1))
    counts = (np.stack([np.bincount(y, minlength=len(names)) for y in part]) for part in (train, test))
    held, tested = counts
    return Holdings(np.array(clusters, dtype=np.int64), held, tested, names, changes)


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


def tiles_of(held: Holdings) -> list[tuple[str, str, str]]:
    """Return the figures of the whole: name, value and a note."""
    members = [np.flatnonzero(held.clusters == cluster) for cluster in np.unique(held.clusters)]
    within = np.average([held.skew(rows, rows) for rows in members], weights=[len(rows) for rows in members])
    known = int((np.unique(held.clusters) >= 0).sum())
    of_labels = (held.train > 0).sum(axis=1)
    tiles = [
        ("clients", f"{len(held.clusters)}", ""),
        ("clusters", f"{known}" if known else "not known", ""),
        ("train samples", f"{int(held.sizes.sum())}", ""),
        ("of a client", _span(held.sizes), f"tested on {_span(held.test.sum(axis=1))}"),
        (f"{_what(held)} of a client", _span(of_labels), f"of {len(held.columns)}"),
        ("skew", f"{held.skew(slice(None)):.2f}", f"{within:.2f} within clusters" if known else ""),
    ]
    return tiles


def cluster_rows(held: Holdings) -> list[list[str]]:
    """Return the table of clusters, its head first."""
    rows = [["cluster", "clients", "train samples", "of a client", _what(held), "skew within", "changes"]]
    for cluster in np.unique(held.clusters):
        members = np.flatnonzero(held.clusters == cluster)
        rows.append(
            [
                f"{cluster}" if cluster >= 0 else "not known",
                f"{len(members)}",
                f"{int(held.sizes[members].sum())}",
                _span(held.sizes[members]),
                f"{int((held.train[members].sum(axis=0) > 0).sum())}",
                f"{held.skew(members, members):.2f}",
                held.changes.get(int(cluster), UNCHANGED),
            ]
        )
    return rows


def _what(held: Holdings) -> str:
    return "labels" if held.has_labels else "tenths"


def _span(values: IntArray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}, median {np.median(values):g}"
