"""Trimmed means of groups' models."""

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray


def trimmed_mean(rows: FloatArray, share: float) -> FloatArray:
    """Return the mean (R,) of each coordinate of rows (P, R) without floor(share P) values at either end.

    With nothing left out it is the plain mean, summed in the order of the values, whatever that of the rows.

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
    """Return the next bank (K, R) by the trimmed mean of each model's updates, every client counting alike.

    Of counters (`integers`) the largest among the members is kept, of running statistics (`untrained`) the plain
    mean. A model without members keeps its bits.
    """
    result = np.array(bank, dtype=np.float64)
    for model in np.unique(assignment):
        members = updates[assignment == model]
        result[model] = trimmed_mean(members, share)
        result[model, untrained] = members[:, untrained].mean(axis=0)
        result[model, integers] = members[:, integers].max(axis=0)
    return result
