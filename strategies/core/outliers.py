"""Outliers among clients: losses and updates far larger than the others'."""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray

UPDATE_FACTOR = 1000.0
LOSS_FACTOR = 100.0
LEAST_CLIENTS = 3
"""Of fewer none is an outlier: of two that differ it cannot be said which."""


def loss_scale(losses: FloatArray) -> float:
    """Return the worst finite loss of the median client, of losses (M, K); 0 of fewer than three clients."""
    if len(losses) < LEAST_CLIENTS:
        return 0.0
    return lower_median(worst_losses(losses))


def worst_losses(losses: FloatArray) -> FloatArray:
    """Return the largest finite loss of each client (M,); 0 where it has none."""
    worst: FloatArray = np.where(np.isfinite(losses), losses, 0.0).max(axis=1, initial=0.0)
    return worst


def outlier_losses(losses: FloatArray, scale: float, factor: float) -> BoolArray:
    """Return the mask (M,) of the loss vectors (M, K) that are outliers with respect to `scale`; none if it is 0.

    A vector is one if its *best* loss is more than `factor` times the scale, or its worst more than `factor` squared.
    `scale` is the largest `loss_scale` of the run so far: losses that have become small in training must not make a
    benign client with a harder sample an outlier.
    """
    if not scale or not losses.size:
        return np.zeros(len(losses), dtype=bool)
    mask: BoolArray = (losses.min(axis=1) > factor * scale) | (worst_losses(losses) > factor**2 * scale)
    return mask


def outlier_updates(largest: FloatArray, of_models: float, known: float = 0.0) -> BoolArray:
    """Return the mask (P,) of the updates that are outliers by their largest value (P,).

    The reference is that of the median client's update, or of the models where that is more. `known` is the largest
    value in what others returned before, without which none of fewer than three is an outlier.
    """
    if not len(largest) or (len(largest) < LEAST_CLIENTS and not known):
        return np.zeros(len(largest), dtype=bool)
    # Those that were refused before are asked together: their median may be an outlier itself.
    mask: BoolArray = largest > UPDATE_FACTOR * max(known or lower_median(largest), of_models)
    return mask


_TERMS_FACTOR = 1e5
"""Times the median client's curvature per record: that of a category with a share of 1e-5 at its only site."""


def outlier_terms(slopes: FloatArray, curvatures: FloatArray, length: float) -> BoolArray:
    """Return the mask (P,) of clients whose gradients and Hessians, by record, are outliers by their largest entries.

    `length` is that of the parameters. The bound is wide: a category of one small site is far from 0 in standard
    units.
    """
    if len(slopes) < LEAST_CLIENTS:
        return np.zeros(len(slopes), dtype=bool)
    most = _TERMS_FACTOR * max(lower_median(curvatures), 1.0)
    mask: BoolArray = (curvatures > most) | (slopes > most * max(length, 1.0))
    return mask


def lower_median(values: FloatArray) -> float:
    """Return the median; of an even number the lower one, so that two liars of four do not set the reference."""
    return float(np.sort(values)[(len(values) - 1) // 2])
