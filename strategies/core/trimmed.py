"""The coordinate-wise trimmed mean: an average that a few updates far from the others cannot move far."""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray


def trimmed_mean(rows: FloatArray, share: float) -> FloatArray:
    """Return the mean of each coordinate without its smallest and its largest values.

    Parameters
    ----------
    rows : (P, R) float64
        At least one.
    share : float
        beta, from 0 to below 0.5: floor(beta P) values are left out at either end.

    Returns
    -------
    (R,) float64
        With nothing left out the plain mean, summed in the order of the values, whatever that of the rows.

    Source: Yin et al. 2018, Def. 2.
    """
    # The small constant keeps products such as 0.07 * 100 from losing one by rounding.
    cut = int(share * len(rows) + 1e-9)
    mean: FloatArray = np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0)
    return mean


def trimmed_means(
    bank: FloatArray,
    updates: FloatArray,
    assignment: IntArray,
    share: float,
    integers: BoolArray,
    untrained: BoolArray,
) -> FloatArray:
    """Average the updates of each model by the trimmed mean, every client counting alike.

    Parameters
    ----------
    bank : (K, R) float64
        The models that were sent. Not modified.
    updates : (P, R) float64
    assignment : (P,) int64
        Model that each participant trained.
    share : float
        See `trimmed_mean`.
    integers : (R,) bool
        Counters: the largest among the members is kept.
    untrained : (R,) bool
        Running statistics: their plain mean is taken.

    Returns
    -------
    (K, R) float64
        A model without members keeps its bits.
    """
    result = np.array(bank, dtype=np.float64)
    for model in np.unique(assignment):
        members = updates[assignment == model]
        result[model] = trimmed_mean(members, share)
        result[model, untrained] = members[:, untrained].mean(axis=0)
        result[model, integers] = members[:, integers].max(axis=0)
    return result
