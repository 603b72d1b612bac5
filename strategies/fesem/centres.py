"""FeSEM's distances of clients' models from centres."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.matching import match_overlap


def nearest_centres(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the centre that is nearest to each model in Euclidean distance; the first among equals.

    Parameters
    ----------
    vectors : (M, D) float64
    centres : (C, D) float64
        At least one.

    Returns
    -------
    (M,) int64

    Source: Long et al. 2023 (FeSEM, arXiv 2005.01026), E-step.
    """
    # Differences, not inner products: models of one cluster agree in most of their digits.
    distances = np.stack([np.sum((vectors - centre) ** 2, axis=1) for centre in centres], axis=1)
    nearest: IntArray = np.argmin(distances, axis=1).astype(np.int64)
    return nearest


def layer_scales(vectors: FloatArray, layers: IntArray) -> FloatArray:
    """Return what each entry is divided by for every layer to have one vote.

    It is the root of a layer's mean squared distance from the clients' mean model: divided by it, all layers have the
    same mean squared distance, 1.

    Parameters
    ----------
    vectors : (M, D) float64
        At least one row.
    layers : (D,) int64
        Layer of each entry, numbered from 0.

    Returns
    -------
    (D,) float64
        Above 0; infinite for a layer that is equal in all models, which has no vote.
    """
    spread = np.mean((vectors - vectors.mean(axis=0)) ** 2, axis=0)
    squared = np.bincount(layers, weights=spread)[layers]
    scales: FloatArray = np.where(squared > 0, np.sqrt(squared), np.inf)
    return scales


def matched(clusters: IntArray, before: IntArray, models: IntArray) -> IntArray:
    """Return, of clusters found anew, the model of each client such that the most clients keep theirs.

    Parameters
    ----------
    clusters : (M,) int64
        Numbered from 0 without gaps.
    before : (M,) int64
        Model that each client trained, one of `models`.
    models : (C,) int64
        Models that may be given, rising; at least as many as clusters.
    """
    return models[match_overlap(clusters, np.searchsorted(models, before), len(models))][clusters]
