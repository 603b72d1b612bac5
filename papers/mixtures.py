"""Error of the shares in which clients mix the models, against those in which their data mix the true clusters."""

import csv
from pathlib import Path

import numpy as np

from florets.strategies.core.matching import match_min_cost
from florets.task.partitions.amounts import cluster_fractions

Mixture = tuple[int, list[float]]
"""A client's own true cluster, and its share of each model."""


def read_mixtures(folder: Path) -> list[Mixture]:
    """Return the mixtures in a run's ``clients.csv``; none of clients whose cluster or shares are not known."""
    path = folder / "clients.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name.startswith("share_")] if rows else []
    return [
        (int(row["true_cluster"]), [float(row[name]) for name in names])
        for row in rows
        if names and row["true_cluster"] and all(row[name] for name in names)
    ]


def share_error(mixtures: list[Mixture], num_clusters: int, own_fraction: float) -> float | None:
    """Return the mean distance of the shares from the true ones, over clients and models.

    Each true cluster is held to the model that is nearest, as the order of the models is the start's; None where
    there is not one for each.
    """
    if not mixtures or len(mixtures[0][1]) != num_clusters:
        return None
    true = cluster_fractions(np.array([cluster for cluster, _ in mixtures]), num_clusters, own_fraction)
    shares = np.array([shares for _, shares in mixtures])
    clusters = np.arange(num_clusters)
    # A line for each true cluster, its mean distance from each model.
    distance = np.abs(true[:, :, None] - shares[:, None, :]).mean(axis=0)
    return float(distance[clusters, match_min_cost(distance, clusters)].mean())
