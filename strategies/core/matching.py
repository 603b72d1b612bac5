"""Matching of clusters to models."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import finite_losses


def summed_losses(losses: FloatArray, clusters: IntArray) -> FloatArray:
    """Return the cost (C, K) of each cluster on each model: the sum of its members' losses, in row order.

    Source: CLoVE Alg. 1, line 12 (edge weights of the bipartite graph).
    """
    costs = np.zeros((_count(clusters), losses.shape[1]))
    np.add.at(costs, clusters, finite_losses(losses))
    return costs


def match_min_cost(losses: FloatArray, clusters: IntArray) -> IntArray:
    """Give each cluster a model of its own (C,) such that the sum of all losses (M, K) is least.

    With fewer clusters than models some models stay unmatched; more are refused (ValueError). Equal inputs give equal
    outputs, ties included.

    Source: CLoVE Alg. 1, line 12.
    """
    costs = summed_losses(losses, clusters)
    _check(len(costs), losses.shape[1])
    _, models = linear_sum_assignment(costs)
    return np.asarray(models, dtype=np.int64)


def match_overlap(clusters: IntArray, previous: IntArray, num_models: int) -> IntArray:
    """Give each cluster a model of its own (C,) such that the most clients keep their `previous` one (M,).

    Raises ValueError if there are more clusters than models. Equal inputs give equal outputs, ties included.

    Source: CFL-GP, Sec. 3, spectral clustering, step (c); an option of the published CLoVE code that it never
    implemented.
    """
    num_clusters = _count(clusters)
    _check(num_clusters, num_models)
    overlap = np.zeros((num_clusters, num_models))
    known = previous >= 0
    np.add.at(overlap, (clusters[known], previous[known]), 1.0)
    _, models = linear_sum_assignment(overlap, maximize=True)
    return np.asarray(models, dtype=np.int64)


def match_in_order(num_clusters: int, num_models: int) -> IntArray:
    """Give cluster c model c: clusters are numbered in the order of their smallest client key.

    Raises ValueError if there are more clusters than models.

    Source: CLoVE, ablation "no matching".
    """
    _check(num_clusters, num_models)
    return np.arange(num_clusters, dtype=np.int64)


def _count(clusters: IntArray) -> int:
    return int(clusters.max()) + 1 if len(clusters) else 0


def check_match(models: IntArray, clusters: IntArray, num_models: int, source: str) -> None:
    """Raise ValueError where clusters do not have a model of their own each."""
    count = int(clusters.max()) + 1
    if models.shape != (count,) or len(set(models.tolist()) & set(range(num_models))) < count:
        raise ValueError(
            f"{source} returned {models!r}: give each of {count} clusters a model of its own, "
            f"from 0 to {num_models - 1}"
        )


def _check(num_clusters: int, num_models: int) -> None:
    if num_clusters > num_models:
        raise ValueError(
            f"{num_clusters} clusters cannot be matched to {num_models} models, each with one of its own: "
            f"ask for at most {num_models} clusters."
        )
