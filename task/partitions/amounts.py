"""Number and labels of each client's samples: sizes, label weights and fractions of clusters."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import IntArray
from florets.task.partitions.shard import spread

Weights = NDArray[np.float64]


def cluster_counts(num_clients: int, num_clusters: int, clients_per_cluster: Sequence[int] | None) -> list[int]:
    """Return the number of clients of each cluster: those asked for, else as even as possible.

    Raises
    ------
    ValueError
        If they do not add up, or a cluster would have no client.
    """
    if clients_per_cluster is None:
        return spread(num_clients, num_clusters)
    counts = list(clients_per_cluster)
    if len(counts) != num_clusters or min(counts) < 1:
        raise ValueError(
            f"task.partition_options.clients_per_cluster={counts} must be one number of at least 1 for each of "
            f"task.num_clusters={num_clusters} clusters."
        )
    if sum(counts) != num_clients:
        raise ValueError(
            f"task.partition_options.clients_per_cluster={counts} are {sum(counts)} clients, but "
            f"num_clients={num_clients}: use num_clients={sum(counts)}, or other counts."
        )
    return counts


def sizes_asked(num_clients: int, asked: int | Sequence[int] | None, rng: np.random.Generator) -> IntArray | None:
    """Return the train samples of each client (M,): one number for all, or drawn; None where all samples are dealt.

    Parameters
    ----------
    asked
        A number, or [least, most]: log-uniform between them, both included.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """
    if asked is None:
        return None
    if isinstance(asked, int):
        least = most = asked
    elif len(asked) == 2:
        least, most = asked
    else:
        least, most = 0, 0
    if not 1 <= least <= most:
        raise ValueError(
            f"task.partition_options.samples_per_client={asked} must be a number of at least 1, [least, most] of "
            "such numbers in order, or left out for all samples."
        )
    if least == most:
        return np.full(num_clients, least)
    # Half a sample beyond either end: rounded, the ends are then as likely as their neighbours.
    drawn = np.exp(rng.uniform(np.log(least - 0.5), np.log(most + 0.5), size=num_clients))
    return np.clip(np.rint(drawn).astype(np.int64), least, most)


def label_weights(
    allowed: NDArray[np.bool_], alpha: float | None, labels_per_client: int | None, rng: np.random.Generator
) -> Weights:
    """Return the weight of each label on each client (M, C); `restricted` holds them to a cluster's labels.

    Parameters
    ----------
    allowed
        (M, C): whether the client's own cluster has the label.
    alpha
        Each client's weights are a Dirichlet draw with this parameter for every label; None: 1 each.
    labels_per_client
        Each client has so many, dealt so that all labels of a cluster are used about equally often; None: all.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """
    num_clients, num_labels = allowed.shape
    weights = np.ones((num_clients, num_labels))
    if alpha is not None:
        if not 0 < alpha < np.inf:
            raise ValueError(f"task.partition_options.alpha={alpha} must be a finite number above 0.")
        weights = rng.dirichlet([alpha] * num_labels, size=num_clients)
    if labels_per_client is None:
        return weights
    fewest = int(allowed.sum(axis=1).min())
    if not 1 <= labels_per_client <= fewest:
        raise ValueError(
            f"task.partition_options.labels_per_client={labels_per_client} must be from 1 to {fewest}, the labels of "
            "a cluster."
        )
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
    """Return which fraction of a client's samples comes from each cluster (M, K).

    Parameters
    ----------
    clusters
        Own cluster of each client (M,).
    own_fraction
        That of its own; the rest comes from all others alike.

    Raises
    ------
    ValueError
        If the fraction is out of its range, or there is no other cluster.
    """
    if not 0 < own_fraction <= 1:
        raise ValueError(f"task.partition_options.own_fraction={own_fraction} must be above 0 and at most 1.")
    if own_fraction < 1 and num_clusters == 1:
        raise ValueError(
            f"task.partition_options.own_fraction={own_fraction}: with task.num_clusters=1 there is no other cluster "
            "to mix with; leave it out, or use more clusters."
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
