"""Dealing rows to clients out of cells (labels): exact numbers, or whole cells cut in proportion to weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from florets.task.data.dataset import IntArray
from florets.task.partitions.amounts import Weights, apportion

NOTHING: IntArray = np.empty(0, dtype=np.int64)

# Draws of random amounts before giving up.
TRIES = 100


@dataclass(frozen=True)
class Piece:
    """What a client wants of one cluster.

    Parameters
    ----------
    client, cluster
        Who, and of which cluster.
    fraction
        Fraction of the client's samples that are of this cluster.
    weights
        Of the cells (C,), adding up to 1.
    """

    client: int
    cluster: int
    fraction: float
    weights: Weights


class Pool:
    """Rows that are not dealt yet, cell by cell.

    Parameters
    ----------
    cells
        Rows of each cell.
    rng
        Shuffles them.
    """

    def __init__(self, cells: Sequence[IntArray], rng: np.random.Generator) -> None:
        self._cells = [rng.permutation(rows) for rows in cells]
        self._rng = rng

    def draw(self, size: int, weights: Weights) -> IntArray | None:
        """Take `size` rows, each of a cell drawn by its weight; of an empty cell the others take over.

        Returns
        -------
        ndarray or None
            The rows; None, and nothing taken, if the cells with a weight hold too few.
        """
        left = np.array([len(rows) for rows in self._cells])
        if left[weights > 0].sum() < size:
            return None
        counts = np.zeros_like(left)
        while (missing := size - int(counts.sum())) > 0:
            open_cells = np.where(counts < left, weights, 0.0)
            counts += self._rng.multinomial(missing, open_cells / open_cells.sum())
            counts = np.minimum(counts, left)
        return self._take(counts)

    def _take(self, counts: IntArray) -> IntArray:
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
    """Return the train rows of each piece, so that every client has as many as asked for.

    Parameters
    ----------
    pieces
        Those of one client follow each other.
    sizes
        Rows of each client (M,), over all of its pieces.
    cells
        Rows of each cell.
    reuse
        Who may be dealt a row that another has: see `florets.task.partitions.composed.composed`.
    rng
        Draws the order of the clients and the rows.

    Raises
    ------
    ValueError
        If the rows do not reach.
    """
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
                raise ValueError(_too_few(piece, int(sizes[client]), cells, reuse))
            rows[number] = drawn
    return rows


def _too_few(piece: Piece, size: int, cells: Sequence[IntArray], reuse: str) -> str:
    there = sum(len(rows) for rows, weight in zip(cells, piece.weights, strict=True) if weight > 0)
    shared = {"none": "all clients share", "clusters": "its cluster's clients share", "clients": "there are"}[reuse]
    more = ", or let clients hold the same samples (reuse=clients)" if reuse != "clients" else ""
    return (
        f"client {piece.client} (cluster {piece.cluster}) is to have {size} train samples, and of its labels "
        f"{shared} {there}, which do not reach: lower task.partition_options.samples_per_client or num_clients{more}."
    )


def deal_all(
    pieces: Sequence[Piece], shares: Weights, cells: Sequence[IntArray], by_cluster: bool, rng: np.random.Generator
) -> list[IntArray]:
    """Return the train rows of each piece, so that all rows are dealt.

    Parameters
    ----------
    pieces
        See `deal_sizes`.
    shares
        Weight of each client (M,) beside the others.
    cells
        Rows of each cell; of a cell that nobody wants nothing is dealt.
    by_cluster
        Every cluster deals all rows; otherwise no row is dealt twice.
    rng
        Shuffles.
    """
    wanted = np.array([shares[piece.client] * piece.fraction * piece.weights for piece in pieces])
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
    """Return test rows in the cells' proportions among a piece's train rows, no more than there are of a cell.

    Parameters
    ----------
    size
        Rows asked for.
    of_train
        Train rows of each cell (C,).
    cells
        Test rows of each cell.
    """
    counts = apportion(size, of_train.astype(np.float64))
    drawn = [
        rng.choice(rows, size=min(int(count), len(rows)), replace=False)
        for rows, count in zip(cells, counts, strict=True)
        if count
    ]
    return np.concatenate(drawn) if drawn else NOTHING
