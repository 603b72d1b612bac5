"""Shift of a client's labels since its cold start."""

import numpy as np

from florets.strategies.core import IntArray


def label_shift(before: IntArray, now: IntArray) -> float:
    """Return the earth mover's distance of two histograms of labels, as federated learning defines it.

    It is the sum over classes of the absolute difference of the two fractions: 0 for equal fractions, 2 where no
    class is in both.

    Parameters
    ----------
    before, now : (C,) int64
        Samples of each class; a histogram without any samples has fractions of 0.

    Source: FlexCFL, client migration, whose threshold is on this scale.
    Deviation: the released code compares the counts as if they were samples of one variable, which cannot see two
    classes change places. Fractions are compared, so that more data of the same kind are no shift.
    """
    fractions = [counts / max(int(counts.sum()), 1) for counts in (before, now)]
    return float(np.abs(fractions[0] - fractions[1]).sum())
