"""Drift, clients that change groups in a simulation: the shards of all clients after each change."""

from collections.abc import Sequence

import numpy as np

from florets.task.partitions.shard import Shard
from florets.task.randomness import Purpose, generator
from florets.task.settings import Drift


def shards_by_version(drift: Drift, first: Sequence[Shard], seed: int) -> list[list[Shard]]:
    """Return the shards of all clients, before the first change and after each; groups keep their sizes."""
    versions = [list(first)]
    for start in drift.rounds:
        before = versions[-1]
        traded = trades([shard.cluster for shard in before], drift.fraction, generator(seed, start, Purpose.DRIFT))
        versions.append([before[traded.get(client, client)] for client in range(len(before))])
    return versions


def trades(clusters: Sequence[int], fraction: float, rng: np.random.Generator) -> dict[int, int]:
    """Draw clients that move, and whose data each of them gets."""
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
            f"task.drift.fraction={fraction:g}: no two clients of different groups would move; raise it."
        )
    by_cluster[most] = by_cluster[most][:others]
    # In the order of the clusters, the largest first, half a turn leads everybody out of the own cluster.
    row = [client for _, of in sorted(by_cluster.items(), key=lambda item: -len(item[1])) for client in of]
    step = max(len(by_cluster[most]), len(row) // 2)
    return {client: row[(place + step) % len(row)] for place, client in enumerate(row)}
