"""Drift, groups that change in a simulation: the shards of all clients in each round."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from florets.task.data.dataset import IntArray
from florets.task.partitions.shard import Renamed, Shard
from florets.task.randomness import Purpose, generator
from florets.task.settings import Drift

Version = tuple[int, int]
"""Key of a round's data: number of changes that have begun, and of rounds since the last one, where they matter."""

_TRIES = 1000


class ShardsByRound:
    """The shards of all clients in each round.

    Clients that move trade their data among each other: each one gets those of a client that leaves another group.
    So groups keep their sizes, and no sample is dealt twice, whatever the partition.

    Parameters
    ----------
    drift
        What changes.
    first
        The shards before, by partition id.
    num_labels
        Classes of the data set; None where targets are values.
    seed
        Of the run.

    Raises
    ------
    ValueError
        If these clients or groups cannot change so.
    """

    def __init__(self, drift: Drift, first: Sequence[Shard], num_labels: int | None, seed: int) -> None:
        self._drift, self._first, self._num_labels, self._seed = drift, list(first), num_labels, seed
        self._mixed: tuple[Version, list[Shard]] | None = None
        # All is drawn now: what cannot work shows before the first round.
        self._changes = self._all_changes

    def version(self, server_round: int) -> Version:
        """Return the same for two rounds only where all clients have the same data in both."""
        begun = sum(start <= server_round for start in self._drift.rounds)
        if not begun:
            return 0, 0
        since = server_round - self._drift.rounds[begun - 1]
        span = self._drift.span or 0
        if self._drift.kind == "gradual":
            return begun, min(since, span - 1)
        return begun, int(self._drift.kind == "returning" and since >= span)

    def at(self, server_round: int) -> list[Shard]:
        """Return the shards of a round, by partition id; 0 stands for the time before the first one."""
        begun, step = version = self.version(server_round)
        if not begun:
            return self._first
        before, after = self._changes[begun - 1]
        if self._drift.kind == "returning":
            return before if step else after
        span = self._drift.span or 1
        if self._drift.kind == "sudden" or step == span - 1:
            return after
        if self._mixed is None or self._mixed[0] != version:
            self._mixed = version, self._mixture(begun - 1, (step + 1) / span)
        return self._mixed[1]

    @cached_property
    def _all_changes(self) -> list[tuple[list[Shard], list[Shard]]]:
        """The shards before and after each change."""
        found = []
        shards = self._first
        for start in self._drift.rounds:
            rng = generator(self._seed, start, Purpose.DRIFT)
            after = self._moved(shards, rng) if self._drift.moves == "clients" else self._renamed(shards, rng)
            found.append((shards, after))
            shards = shards if self._drift.kind == "returning" else after
        return found

    def _moved(self, shards: list[Shard], rng: np.random.Generator) -> list[Shard]:
        after = list(shards)
        for taker, giver in trades([shard.cluster for shard in shards], self._drift.fraction, rng).items():
            after[taker] = shards[giver]
        return after

    def _renamed(self, shards: list[Shard], rng: np.random.Generator) -> list[Shard]:
        if self._num_labels is None or self._num_labels < 2:
            raise ValueError(
                "task.drift.moves=concepts: renames class labels, and this data set has values; use "
                "task.drift.moves=clients."
            )
        groups = sorted({shard.cluster for shard in shards})
        count = max(1, round(self._drift.fraction * len(groups)))
        chosen = rng.permutation(groups)[:count].tolist()
        names = {group: _other_names(self._num_labels, rng) for group in chosen}
        # One object for what is done to the samples of one group: whoever counts samples tells by it.
        known: dict[tuple[int, int], Renamed] = {}

        def renamed(group: int, piece: Shard) -> Shard:
            transform = known.setdefault((group, id(piece.transform)), Renamed(names[group], piece.transform))
            return replace(piece, transform=transform, others=())

        return [
            _joined(shard.cluster, [renamed(shard.cluster, piece) for piece in shard.pieces])
            if shard.cluster in names
            else shard
            for shard in shards
        ]

    def _mixture(self, number: int, share: float) -> list[Shard]:
        """Return the shards on the way from before to after a change: that share of each one has been passed on.

        A client is of the group that more than half of its training samples are of.
        """
        before, after = self._changes[number]
        owners = {id(shard): client for client, shard in enumerate(before)}
        mixed = []
        for client, (old, new) in enumerate(zip(before, after, strict=True)):
            if old is new:
                mixed.append(old)
                continue
            # Whose samples the new ones are decides which of them come first; renamed, they are the client's own.
            owner = owners.get(id(new), client)
            given, kept = self._part(new, owner, number, share, True), self._part(old, client, number, share, False)
            # Clients differ in size: half of one's samples may be many more than half of another's.
            most_are_new = sum(len(piece.train) for piece in given) > sum(len(piece.train) for piece in kept)
            mixed.append(_joined(new.cluster, given + kept) if most_are_new else _joined(old.cluster, kept + given))
        return mixed

    def _part(self, shard: Shard, owner: int, number: int, share: float, given: bool) -> list[Shard]:
        """Return the pieces of a client's shard that are given away, or kept, when that share of it is."""
        rng = generator(self._seed, self._drift.rounds[number], Purpose.DRIFT_SAMPLES, owner)

        def some(rows: IntArray) -> IntArray:
            order, cut = rng.permutation(len(rows)), round(share * len(rows))
            return rows[np.sort(order[:cut] if given else order[cut:])]

        return [replace(piece, train=some(piece.train), test=some(piece.test), others=()) for piece in shard.pieces]


def trades(clusters: Sequence[int], fraction: float, rng: np.random.Generator) -> dict[int, int]:
    """Draw clients that move, and whose data each of them gets.

    Parameters
    ----------
    clusters
        True cluster of each client.
    fraction
        Of the clients that move, rounded; they are spread over the clusters as evenly as can be. Where nobody of
        another cluster is left to trade with, fewer move.

    Returns
    -------
    dict
        By client that moves: the client of another cluster whose data it gets. Each one's go to one other.
    """
    members: dict[int, list[int]] = {}
    for client in rng.permutation(len(clusters)).tolist():
        members.setdefault(clusters[client], []).append(client)
    wanted = round(fraction * len(clusters))
    # One of each cluster in turn, the clusters in random order.
    turns = [client for turn in range(len(clusters)) for of in members.values() for client in of[turn : turn + 1]]
    by_cluster: dict[int, list[int]] = {}
    for client in turns[:wanted]:
        by_cluster.setdefault(clusters[client], []).append(client)
    # A cluster that has more than half of them would have to trade within itself.
    most = max(by_cluster, key=lambda cluster: len(by_cluster[cluster]), default=0)
    others = sum(len(of) for cluster, of in by_cluster.items() if cluster != most)
    if not others:
        raise ValueError(
            f"task.drift.fraction={fraction:g}: of {len(clusters)} clients no two of different groups would move; "
            "raise it, or use more groups."
        )
    by_cluster[most] = by_cluster[most][:others]
    # In the order of the clusters, the largest first, half a turn leads everybody out of the own cluster.
    row = [client for _, of in sorted(by_cluster.items(), key=lambda item: -len(item[1])) for client in of]
    step = max(len(by_cluster[most]), len(row) // 2)
    return {client: row[(place + step) % len(row)] for place, client in enumerate(row)}


def _other_names(num_labels: int, rng: np.random.Generator) -> IntArray:
    """Draw new names of all labels, none of which stays."""
    for _ in range(_TRIES):
        names = rng.permutation(num_labels)
        if (names != np.arange(num_labels)).all():
            return names
    return np.roll(np.arange(num_labels), 1)


def _joined(cluster: int, pieces: list[Shard]) -> Shard:
    """Return pieces as one client's shard of a cluster; one without any sample is left out."""
    first, *others = [piece for piece in pieces if len(piece.train) or len(piece.test)]
    return replace(first, cluster=cluster, others=tuple(others))
