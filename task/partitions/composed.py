"""Partitions put together from parts: what clusters do to samples, who is in them, and who has which samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, FloatArray, IntArray, TargetArray
from florets.task.partitions import amounts
from florets.task.partitions.rotation import TEST_SHARE, check_images, turned
from florets.task.partitions.shard import Shard, Transform, check_bounds, rows_by_group
from florets.task.registry import check_ranges

# Fewer test samples say little of a client; a size of its own is asked for where this is too many.
LEAST_TEST = 10
LEAST_TRAIN = 2
# Draws of random amounts before giving up.
TRIES = 100


@dataclass(frozen=True)
class Change:
    """What one cluster does to inputs (n, *input_shape) and targets (n,), in the order of the fields."""

    mirror: bool = False
    angle: float = 0.0
    """Counter-clockwise, in degrees."""
    renamed: IntArray | None = None
    """The label that stands in place of each, int64 (C,); None leaves them."""

    def __call__(self, x: FloatArray, y: TargetArray) -> tuple[FloatArray, TargetArray]:
        """Return the changed inputs and targets."""
        if self.mirror:
            x = np.ascontiguousarray(x[..., ::-1])
        if self.angle % 360:
            x, y = turned(x, y, self.angle)
        return x, y if self.renamed is None else self.renamed[y]

    def __str__(self) -> str:
        """Name what is done, in the order in which it is done."""
        done = [
            "mirrored" if self.mirror else "",
            f"rotated by {self.angle:g}°" if self.angle % 360 else "",
            "" if self.renamed is None else f"labels {' '.join(map(str, self.renamed))}",
        ]
        return ", ".join(filter(None, done)) or "unchanged"


def composed(
    data: Dataset,
    num_clients: int,
    num_clusters: int,
    rng: np.random.Generator,
    clients_per_cluster: list[int] | None = None,
    angles: list[float] | None = None,
    mirror: bool = False,
    label_shifts: list[int] | None = None,
    labels_per_cluster: int | None = None,
    alpha: float | None = None,
    labels_per_client: int | None = None,
    samples_per_client: int | list[int] | None = None,
    own_fraction: float = 1.0,
    reuse: Literal["none", "clusters", "clients"] = "none",
    test_samples_per_client: int | None = None,
) -> list[Shard]:
    """Deal samples to clients, and let each cluster change its own.

    Every combination of what tells clusters apart (`angles` to `labels_per_cluster`) is one cluster; what follows
    holds within a cluster. Without any there is one cluster: identically distributed clients, or with `alpha` or
    `labels_per_client` clients of different labels that form no groups.

    docs/partitions.md has the options. Where all samples are dealt, they are so evenly where labels do not make sizes
    differ, and again where a client would have fewer than two. Test samples have the proportions of a client's train
    labels and are drawn anew for each: two may be tested on one sample. Of a pool (``task.data_options.pooled=true``)
    each client keeps 0.3 of the samples that it is dealt.

    Source: `alpha`: Hsu, Qi, Brown 2019 (arXiv 1909.06335). `labels_per_client`: McMahan et al. 2017
    (arXiv 1602.05629).
    Deviation: the first draws with alpha times the labels' frequencies as parameters, here each label has alpha
    itself; where all samples are dealt, those of a label are cut in proportion to the clients' weights. The second
    deals shards of samples sorted by label, here labels are dealt.
    """
    counts = amounts.cluster_counts(num_clients, num_clusters, clients_per_cluster)
    check_bounds(None, test_samples_per_client)
    if data.pooled and (test_samples_per_client is not None or reuse != "none"):
        raise ValueError("with a pool leave out task.partition_options.test_samples_per_client and reuse.")
    changes = _combinations(data, angles, mirror, label_shifts)
    train, test, allowed = _cells(
        data, num_clusters, len(changes), labels_per_cluster, alpha is not None or labels_per_client is not None
    )
    clusters = np.repeat(np.arange(num_clusters), counts)
    fractions = amounts.cluster_fractions(clusters, num_clusters, own_fraction)
    if own_fraction < 1 and labels_per_client is not None and labels_per_cluster is not None:
        raise ValueError("task.partition_options.labels_per_client: leave out own_fraction or labels_per_cluster.")
    sizes = amounts.sizes_asked(num_clients, samples_per_client, rng)
    if reuse == "clients" and sizes is None:
        raise ValueError("task.partition_options.reuse=clients needs to know how many: give samples_per_client.")

    def draw_pieces() -> list[amounts.Piece]:
        weights = amounts.label_weights(allowed[clusters], alpha, labels_per_client, rng)
        every = [(client, int(cluster)) for client, of in enumerate(fractions) for cluster in np.flatnonzero(of)]
        # Of a client's pieces that of its own cluster comes first.
        every.sort(key=lambda pair: (pair[0], pair[1] != clusters[pair[0]]))
        return [
            amounts.Piece(
                client,
                cluster,
                float(fractions[client, cluster]),
                amounts.restricted(weights[client], allowed[cluster]),
            )
            for client, cluster in every
        ]

    if sizes is not None:
        pieces = draw_pieces()
        rows = amounts.deal_sizes(pieces, sizes, train, reuse, rng)
    else:
        for _ in range(TRIES if alpha is not None else 1):
            pieces = draw_pieces()
            rows = amounts.deal_all(pieces, train, reuse == "clusters", rng)
            found = np.bincount([piece.client for piece in pieces], weights=[len(part) for part in rows])
            if found.min() >= LEAST_TRAIN:
                break
        else:
            raise ValueError(
                f"a client would have {found.min():.0f} train samples, fewer than {LEAST_TRAIN}: lower num_clients, "
                "raise task.partition_options.alpha, or give samples_per_client."
            )
    if data.pooled:
        cuts = [np.split(rng.permutation(mine), [round(TEST_SHARE * len(mine))]) for mine in rows]
        tests, rows = [its for its, _ in cuts], [mine for _, mine in cuts]
    else:
        tests = _tests(pieces, rows, train, test, test_samples_per_client, rng)
    parts = [
        (piece.client, Shard(piece.cluster, mine, its, changes[piece.cluster % len(changes)]))
        for piece, mine, its in zip(pieces, rows, tests, strict=True)
    ]
    of_client = ([shard for _, shard in of] for _, of in groupby(parts, key=lambda part: part[0]))
    return [replace(first, others=tuple(others)) for first, *others in of_client]


def _combinations(
    data: Dataset, angles: Sequence[float] | None, mirror: bool, label_shifts: Sequence[int] | None
) -> list[Transform | None]:
    """Return every combination of the changes, None where nothing changes; angles vary fastest, then mirror."""
    turns = [0.0] if angles is None else angles
    if angles is not None or mirror:
        check_images(data, "composed with angles or mirror", turns)
    check_ranges(
        "partition", ("angles", turns, 0 < len(turns) == len({turn % 360 for turn in turns}), "different turns")
    )
    return [
        None if renamed is None and not (mirrored or turn % 360) else Change(mirrored, turn, renamed)
        for renamed, mirrored, turn in product(_namings(data, label_shifts), [False, True][: 1 + mirror], turns)
    ]


def _namings(data: Dataset, label_shifts: Sequence[int] | None) -> list[IntArray | None]:
    """Return the names of the labels by each shift, None for their own."""
    if label_shifts is None:
        return [None]
    if data.y_train.dtype != np.int64:
        raise ValueError("task.partition_options.label_shifts renames class labels, but the targets are values.")
    shifts = [shift % data.num_outputs for shift in label_shifts]
    rule = f"different numbers, also modulo the {data.num_outputs} labels"
    check_ranges("partition", ("label_shifts", label_shifts, 0 < len(shifts) == len(set(shifts)), rule))
    return [(np.arange(data.num_outputs) + shift) % data.num_outputs if shift else None for shift in shifts]


def _cells(
    data: Dataset, num_clusters: int, num_changes: int, labels_per_cluster: int | None, by_label: bool
) -> tuple[list[IntArray], list[IntArray], NDArray[np.bool_]]:
    """Return the train rows and the test rows of each cell, and which cells a cluster deals from (K, C)."""
    num_sets, rest = divmod(num_clusters, num_changes)
    if rest or (labels_per_cluster is None and num_sets != 1):
        fits = f"a multiple of {num_changes}" if labels_per_cluster is not None else f"{num_changes}"
        raise ValueError(
            f"task.num_clusters={num_clusters} must be {fits}, the number of combinations of "
            "angles, mirror and label_shifts."
        )
    set_of = np.arange(num_clusters) // num_changes
    if labels_per_cluster is None and not by_label:
        everything = [np.arange(len(data.x_train))], [np.arange(len(data.x_test))]
        return *everything, np.ones((num_clusters, 1), dtype=bool)
    train, test = rows_by_group(data)
    if labels_per_cluster is None:
        return train, test, np.ones((num_clusters, len(train)), dtype=bool)
    most = len(train) // num_sets
    rule = f"from 1 to {most}: the data set has {len(train)} labels for {num_sets} sets"
    check_ranges("partition", ("labels_per_cluster", labels_per_cluster, 1 <= labels_per_cluster <= most, rule))
    sets = np.arange(labels_per_cluster * num_sets).reshape(num_sets, labels_per_cluster)
    if by_label:
        holds = np.zeros((num_sets, len(train)), dtype=bool)
        np.put_along_axis(holds, sets, True, axis=1)
        return train, test, holds[set_of]
    joined = [[np.concatenate([rows[label] for label in labels]) for labels in sets] for rows in (train, test)]
    return joined[0], joined[1], np.eye(num_sets, dtype=bool)[set_of]


def _tests(
    pieces: Sequence[amounts.Piece],
    rows: Sequence[IntArray],
    train: Sequence[IntArray],
    test: Sequence[IntArray],
    asked: int | None,
    rng: np.random.Generator,
) -> list[IntArray]:
    """Return the test rows of each piece; `asked` for a client, None: in proportion to its train rows."""
    num_train, num_test = (sum(len(cell) for cell in cells) for cells in (train, test))
    cell_of = np.empty(1 + max(int(cell.max()) for cell in train), dtype=np.int64)
    for number, cell in enumerate(train):
        cell_of[cell] = number
    drawn: list[IntArray] = []
    for client, numbers in groupby(range(len(pieces)), key=lambda number: pieces[number].client):
        mine = list(numbers)
        in_proportion = round(sum(len(rows[number]) for number in mine) * num_test / num_train)
        size = max(LEAST_TEST, in_proportion) if asked is None else asked
        sizes = amounts.apportion(size, np.array([pieces[number].fraction for number in mine]))
        found = [
            amounts.draw_test(int(part), np.bincount(cell_of[rows[number]], minlength=len(train)), test, rng)
            for number, part in zip(mine, sizes, strict=True)
        ]
        if asked is not None and sum(map(len, found)) < asked:
            raise ValueError(
                f"task.partition_options.test_samples_per_client={asked}: of the labels of client {client} there are "
                f"{sum(map(len, found))} in their proportions."
            )
        drawn += found
    return drawn
