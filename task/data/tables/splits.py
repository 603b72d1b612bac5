"""Splits of a table into training and test records: stratified, and with a subject's records on one side."""

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_STRATA = 10
"""Quantiles of a regression's target by which records are stratified."""
_MOST_FOLDS = 20
"""Folds into which subjects are divided, some of which are the test set: with more its share is met more nearly, and
each has fewer of a class."""


def split_rows(
    target: NDArray[Any],
    groups: NDArray[Any] | None,
    test_share: float,
    seed: int,
    is_regression: bool,
    stratify: bool = True,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows (sorted) of the training and of the test set.

    Parameters
    ----------
    target
        (n,): class names, or values.
    groups
        (n,): whose each record is; all of one subject's records come into one set. None: each stands for itself.
    test_share
        Fraction of the test set, rounded up; at least one record is on either side. Of subjects it is met as nearly
        as twentieths and their sizes allow.
    seed
        Of the draw: without groups that of scikit-learn's `train_test_split`, so that published splits can be
        reproduced.
    is_regression
        Stratify by quantiles of the target in place of classes.
    stratify
        Draw the same fraction of each class, or quantile.

    Raises
    ------
    ValueError
        If there are fewer than two records, or all are one subject's.
    """
    from sklearn.model_selection import StratifiedGroupKFold, train_test_split

    n = len(target)
    if n < 2:
        raise ValueError(f"a table of {n} record cannot be split into training and test records: give at least 2.")
    strata = _strata(target, is_regression, test_share) if stratify else None
    if groups is not None:
        subjects = len(np.unique(groups))
        if subjects < 2:
            raise ValueError(
                "all records belong to one subject (task.table.group), and cannot be split; give several."
            )
        num_test, folds = _folds(test_share, min(_MOST_FOLDS, subjects))
        if strata is None or np.bincount(strata).max() < folds:
            strata = np.zeros(n, dtype=np.int64)
        cut = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
        with warnings.catch_warnings():
            # Of few subjects a class may have fewer records than there are folds.
            warnings.simplefilter("ignore", UserWarning)
            tests = [test for _, test in cut.split(groups, strata, groups)]
        is_test = np.zeros(n, dtype=bool)
        is_test[np.concatenate(tests[:num_test])] = True
        return np.flatnonzero(~is_test), np.flatnonzero(is_test)
    train, test = train_test_split(
        np.arange(n),
        test_size=min(math.ceil(test_share * n), n - 1),
        random_state=seed,
        shuffle=True,
        stratify=strata,
    )
    return np.sort(train).astype(np.int64), np.sort(test).astype(np.int64)


def _folds(test_share: float, most: int) -> tuple[int, int]:
    """Return how many of how many folds, at most so many, are the test set.

    In lowest terms: of a class that is rarer than the folds are many, four of twenty may have none, one of five has.
    """
    nearest = Fraction(test_share).limit_denominator(most)
    nearest = min(max(nearest, Fraction(1, most)), Fraction(most - 1, most))
    return nearest.numerator, nearest.denominator


def _strata(target: NDArray[Any], is_regression: bool, test_share: float) -> NDArray[np.int64] | None:
    """Return the stratum of each record; None where there are too few records for any."""
    n = len(target)
    if is_regression:
        values = target.astype(np.float64)
        num_test = int(np.ceil(test_share * n))
        count = min(_MOST_STRATA, num_test, n - num_test, n // 2)
        if count < 2:
            return None
        edges = np.quantile(values, np.linspace(0, 1, count + 1)[1:-1])
        found = np.searchsorted(edges, values, side="right")
    else:
        found = np.unique(target, return_inverse=True)[1]
    counts = np.bincount(found)
    # A class of one record cannot be on both sides: it goes with the most frequent one.
    found = np.where(counts[found] < 2, counts.argmax(), found)
    kinds = len(np.unique(found))
    num_test = int(np.ceil(test_share * n))
    return found.astype(np.int64) if 1 < kinds <= min(num_test, n - num_test) else None
