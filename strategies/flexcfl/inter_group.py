"""FlexCFL's inter-group aggregation: each group's model moves a little towards the others'."""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray

_MOST = 1e100


def mix_groups(bank: FloatArray, groups: int, rate: float, entries: BoolArray) -> FloatArray:
    """Move the models of the first groups towards each other.

    Model g becomes the mean of itself, with weight 1, and of every other group's model j, with weight
    eta / |theta_j|: a convex combination, so that models that are equal stay as they are.

    Parameters
    ----------
    bank : (K, R) float64
        Not modified.
    groups : int
        How many of the models, from the first, belong to a group; the others stay.
    rate : float
        eta, the inter-group learning rate; 0 changes nothing. No rate is too large: the larger it is, the less of
        itself a model keeps, down to nothing, and it becomes a mean of the others.
    entries : (R,) bool
        The entries that are mixed, and whose length counts: trainable parameters.

    Returns
    -------
    (K, R) float64

    Source: FlexCFL, inter-group aggregation with learning rate eta_g, as the released code normalises it.
    """
    mixed = np.array(bank, dtype=np.float64)
    if rate == 0 or groups < 2:
        return mixed
    models = bank[:groups][:, entries]
    lengths = np.sqrt(np.sum(models**2, axis=1))
    # A model of zeros has no direction to move to.
    # At the cap a model keeps nothing of itself; beyond it sums could overflow.
    weights = np.where(lengths > 0, np.minimum(rate / np.where(lengths > 0, lengths, 1.0), _MOST), 0.0)
    for group in range(groups):
        others = np.arange(groups) != group
        pull = np.sum(weights[others, np.newaxis] * models[others], axis=0)
        mixed[group, entries] = (models[group] + pull) / (1.0 + weights[others].sum())
    return mixed
