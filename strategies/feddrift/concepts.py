"""Models of concepts: how much more each loses on the others' data, and what models that merge become."""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.aggregate import average_models
from florets.strategies.core.finite import finite_losses


def losses_on_groups(losses: FloatArray, groups: IntArray, weights: FloatArray, models: IntArray) -> FloatArray:
    """Return the loss of each of some models on the data of each one's clients.

    Parameters
    ----------
    losses : (P, K) float
        Losses of all models on the clients' data; see `finite.finite_losses` for NaN.
    groups : (P,) int64
        Model of each client.
    weights : (P,) float64
        Example counts.
    models : (G,) int64
        Models that have clients.

    Returns
    -------
    (G, G) float64
        Row i, column j: model i on the data of the clients of model j.
    """
    clean = finite_losses(losses)[:, models]
    return np.stack(
        [np.average(clean[groups == model], axis=0, weights=weights[groups == model]) for model in models]
    ).T


def concept_distances(losses: FloatArray) -> FloatArray:
    """Return how much more two models lose on each other's data than on their own, the larger of both, at least 0.

    Parameters
    ----------
    losses : (G, G) float64
        See `losses_on_groups`.

    Returns
    -------
    (G, G) float64
        Symmetric, with zeros on the diagonal.

    Source: Jothimurugesan et al. 2023 (FedDrift), the clusters' distance; in losses, where the released code takes
    accuracies.
    """
    rise = losses - np.diag(losses)[:, np.newaxis]
    distances: FloatArray = np.maximum(np.maximum(rise, rise.T), 0.0)
    return distances


def merged_models(bank: FloatArray, heirs: IntArray, trained: IntArray, integers: BoolArray) -> FloatArray:
    """Return the models that are left after some merged.

    Parameters
    ----------
    bank : (K, R) float64
        Not modified.
    heirs : (K,) int64
        New number of each model, from 0 without gaps; -1 for one that is left out.
    trained : (K,) int64
        Clients that have trained it, over all rounds: the weights of the mean. A model that nobody has trained counts
        as one that was trained once.
    integers : (R,) bool
        Entries that are counters, of which the largest is kept.

    Returns
    -------
    (K', R) float64
        A model that did not merge keeps its bits.
    """
    count = int(heirs.max(initial=-1)) + 1
    _, first = np.unique(heirs[heirs >= 0], return_index=True)
    start = bank[np.flatnonzero(heirs >= 0)[first]]
    together = (heirs >= 0) & (np.bincount(heirs[heirs >= 0], minlength=count)[heirs] > 1)
    weights = np.maximum(trained[together], 1).astype(np.float64)
    return average_models(start, bank[together], heirs[together], weights, "examples", integers)
