"""Number and labels of each client's samples, and dealing rows to clients accordingly."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import IntArray
from florets.task.partitions.shard import spread
from florets.task.registry import check_ranges

Weights = NDArray[np.float64]


def cluster_counts(num_clients: int, num_clusters: int, clients_per_cluster: Sequence[int] | None) -> list[int]:
    """Return the number of clients of each cluster: those asked for, else as even as possible."""
    if clients_per_cluster is None:
        return spread(num_clients, num_clusters)
    counts = list(clients_per_cluster)
    rule = f"task.num_clusters={num_clusters} numbers from 1 that add up to num_clients={num_clients}"
    fits = len(counts) == num_clusters and min(counts) >= 1 and sum(counts) == num_clients
    check_ranges("partition", ("clients_per_cluster", counts, fits, rule))
    return counts


def sizes_asked(num_clients: int, asked: int | Sequence[int] | None, rng: np.random.Generator) -> IntArray | None:
    """Return each client's number of train samples (M,), log-uniform in [least, most]; None where all are dealt."""
    if asked is None:
        return None
    least, most = (asked, asked) if isinstance(asked, int) else asked if len(asked) == 2 else (0, 0)
    rule = "a number from 1, two of them as [least, most], or left out for all samples"
    check_ranges("partition", ("samples_per_client", asked, 1 <= least <= most, rule))
    if least == most:
        return np.full(num_clients, least)
    # Half a sample beyond either end: rounded, the ends are then as likely as their neighbours.
    drawn = np.exp(rng.uniform(np.log(least - 0.5), np.log(most + 0.5), size=num_clients))
    return np.clip(np.rint(drawn).astype(np.int64), least, most)


def label_weights(
    allowed: NDArray[np.bool_], alpha: float | None, labels_per_client: int | None, rng: np.random.Generator
) -> Weights:
    """Return the weight of each label on each client (M, C): a Dirichlet draw with `alpha`, or 1; 0 if not dealt."""
    num_clients, num_labels = allowed.shape
    weights = np.ones((num_clients, num_labels))
    if alpha is not None:
        check_ranges("partition", ("alpha", alpha, 0 < alpha < np.inf, "a finite number above 0"))
        weights = rng.dirichlet([alpha] * num_labels, size=num_clients)
    if labels_per_client is None:
        return weights
    fewest = int(allowed.sum(axis=1).min())
    rule = f"from 1 to {fewest}, the labels of a cluster"
    check_ranges("partition", ("labels_per_client", labels_per_client, 1 <= labels_per_client <= fewest, rule))
    dealt = _dealt_labels(allowed, labels_per_client, rng)
    # A draw with a small alpha may leave a label next to nothing, but a client has all that it was dealt.
    weights[~dealt] = 0.0
    weights[dealt] = np.maximum(weights[dealt], np.finfo(np.float64).tiny)
    return weights


def restricted(weights: Weights, allowed: NDArray[np.bool_]) -> Weights:
    """Return a client's weights (C,) on a cluster's labels, adding up to 1; even where none of them has a weight."""
    held: Weights = np.where(allowed, weights, 0.0)
    if held.sum() == 0:
        held = allowed.astype(np.float64)
    held /= held.sum()
    return held


def _dealt_labels(allowed: NDArray[np.bool_], count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Deal `count` different labels to each client; those used least so far come first, in random order."""
    used = np.zeros(allowed.shape[1], dtype=np.int64)
    dealt = np.zeros_like(allowed)
    for client in rng.permutation(len(allowed)):
        labels = rng.permutation(np.flatnonzero(allowed[client]))
        chosen = labels[np.argsort(used[labels], kind="stable")[:count]]
        used[chosen] += 1
        dealt[client, chosen] = True
    return dealt


def cluster_fractions(clusters: IntArray, num_clusters: int, own_fraction: float) -> Weights:
    """Return which fraction of a client's samples comes from each cluster (M, K): the rest from all others alike."""
    check_ranges(
        "partition",
        ("own_fraction", own_fraction, 0 < own_fraction <= 1, "above 0 and at most 1"),
        ("own_fraction", own_fraction, own_fraction == 1 or num_clusters > 1, "1 with task.num_clusters=1"),
    )
    rest = (1 - own_fraction) / max(num_clusters - 1, 1)
    fractions = np.full((len(clusters), num_clusters), rest)
    fractions[np.arange(len(clusters)), clusters] = own_fraction
    return fractions


def apportion(total: int, weights: Weights) -> IntArray:
    """Split a number into integers in proportion to weights, by largest remainders; ties go to the first."""
    if total == 0 or weights.sum() == 0:
        return np.zeros(len(weights), dtype=np.int64)
    exact = total * weights / weights.sum()
    parts: IntArray = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: total - int(parts.sum())]] += 1
    return parts


NOTHING: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Piece:
    """A client's fraction of samples of one cluster, by weights of the cells (C,), which add up to 1."""

    client: int
    cluster: int
    fraction: float
    weights: Weights


class Pool:
    """Rows that are not dealt yet, cell by cell, shuffled."""

    def __init__(self, cells: Sequence[IntArray], rng: np.random.Generator) -> None:
        self._cells = [rng.permutation(rows) for rows in cells]
        self._rng = rng

    def draw(self, size: int, weights: Weights) -> IntArray | None:
        """Take `size` rows, each of a cell drawn by its weight; None if the cells with a weight hold too few."""
        left = np.array([len(rows) for rows in self._cells])
        if left[weights > 0].sum() < size:
            return None
        counts = np.zeros_like(left)
        while (missing := size - int(counts.sum())) > 0:
            # Of an empty cell the others take over.
            open_cells = np.where(counts < left, weights, 0.0)
            counts += self._rng.multinomial(missing, open_cells / open_cells.sum())
            counts = np.minimum(counts, left)
        taken = [rows[:count] for rows, count in zip(self._cells, counts, strict=True)]
        self._cells = [rows[count:] for rows, count in zip(self._cells, counts, strict=True)]
        return np.concatenate(taken)

    def cut(self, wanted: Weights) -> list[IntArray]:
        """Cut every cell among P pieces in proportion to their weights (P, C), and return the rows of each piece."""
        parts: list[list[IntArray]] = [[] for _ in wanted]
        for rows, weights in zip(self._cells, wanted.T, strict=True):
            if not weights.sum():
                continue
            ends = np.rint(np.cumsum(weights) / weights.sum() * len(rows)).astype(np.int64)
            for part, piece in zip(parts, np.split(rows, ends[:-1]), strict=True):
                part.append(piece)
        return [np.concatenate(part) if part else NOTHING for part in parts]


def deal_sizes(
    pieces: Sequence[Piece], sizes: IntArray, cells: Sequence[IntArray], reuse: str, rng: np.random.Generator
) -> list[IntArray]:
    """Return the train rows of each piece, so that every client has its size (M,) over all of its pieces."""
    of_client: dict[int, list[int]] = {}
    for number, piece in enumerate(pieces):
        of_client.setdefault(piece.client, []).append(number)
    pools: dict[int, Pool] = {}
    rows: list[IntArray] = [NOTHING] * len(pieces)
    for client in rng.permutation(len(sizes)):
        numbers = of_client[client]
        counts = apportion(int(sizes[client]), np.array([pieces[number].fraction for number in numbers]))
        if reuse == "clients":
            pools = {}
        for number, count in zip(numbers, counts, strict=True):
            piece = pieces[number]
            key = piece.cluster if reuse == "clusters" else 0
            if key not in pools:
                pools[key] = Pool(cells, rng)
            drawn = pools[key].draw(int(count), piece.weights)
            if drawn is None:
                raise ValueError(
                    f"client {client} is to have {sizes[client]} train samples, and of its labels there are too few: "
                    "lower task.partition_options.samples_per_client or num_clients, or give reuse=clients."
                )
            rows[number] = drawn
    return rows


def deal_all(
    pieces: Sequence[Piece], cells: Sequence[IntArray], by_cluster: bool, rng: np.random.Generator
) -> list[IntArray]:
    """Return the train rows of each piece, so that all rows are dealt, once or by every cluster."""
    wanted = np.array([piece.fraction * piece.weights for piece in pieces])
    if not by_cluster:
        return Pool(cells, rng).cut(wanted)
    rows: list[IntArray] = [NOTHING] * len(pieces)
    clusters = np.array([piece.cluster for piece in pieces])
    for cluster in np.unique(clusters):
        numbers = np.flatnonzero(clusters == cluster)
        for number, part in zip(numbers, Pool(cells, rng).cut(wanted[numbers]), strict=True):
            rows[number] = part
    return rows


def draw_test(size: int, of_train: IntArray, cells: Sequence[IntArray], rng: np.random.Generator) -> IntArray:
    """Return `size` test rows, fewer of a small cell, in the cells' proportions among a piece's train rows (C,)."""
    counts = apportion(size, of_train.astype(np.float64))
    drawn = [
        rng.choice(rows, size=min(int(count), len(rows)), replace=False)
        for rows, count in zip(cells, counts, strict=True)
        if count
    ]
    return np.concatenate(drawn) if drawn else NOTHING
