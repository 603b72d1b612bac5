"""Splits of one client's records into two sets, drawn for this client: by class, along values, by subject."""

import math
import warnings
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from florets.task.registry import check_ranges

Rows = NDArray[np.int64]

TEST_SHARE = 0.2
"""Fraction of an undivided set that is tested on, unless the run says otherwise."""
_MOST_STRATA = 10
"""Quantiles of a regression's target by which scikit-learn's split, and one by subject, is stratified."""
_MOST_FOLDS = 20
"""Folds into which subjects are divided, some of which are the test set: with more its share is met more nearly, and
each has fewer of a class."""


def split_rows(
    target: NDArray[np.float64],
    groups: Rows | None,
    test_share: float,
    rng: np.random.Generator,
    is_regression: bool,
    stratify: bool = True,
) -> tuple[Rows, Rows]:
    """Return the rows (sorted) of the training and of the test set, with each class's share, or along the values.

    `test_share` is rounded up, and at least one record is on either side. Records of one of `groups` (n,) stay
    together.
    """
    n = len(target)
    check_ranges("data", ("test_share", test_share, 0 < test_share < 1, "between 0 and 1"))
    if n < 2:
        raise ValueError(f"{n} record cannot be split into training and test records: give at least 2.")
    if groups is not None:
        is_test = _of_subjects(target, groups, test_share, rng, is_regression, stratify)
    else:
        wanted = min(math.ceil(test_share * n), n - 1)
        is_test = drawn(target, is_regression, wanted, rng, stratify)
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def drawn(
    target: NDArray[np.float64], is_regression: bool, wanted: int, rng: np.random.Generator, stratify: bool = True
) -> NDArray[np.bool_]:
    """Draw so many records, bool (n,): of records in the order of their classes, or values, every n / wanted-th."""
    n, order = len(target), rng.permutation(len(target))
    if stratify:
        classes = np.unique(target, return_inverse=True)[1]
        # The order of the classes is random too: which of many small ones are drawn depends on it.
        keys = classes if is_regression else rng.permutation(classes.max() + 1)[classes]
        order = order[np.argsort(keys[order], kind="stable")]
        places = np.floor((rng.random() + np.arange(wanted)) * n / max(wanted, 1)).astype(np.int64)
    else:
        places = np.arange(wanted)
    is_drawn = np.zeros(n, dtype=bool)
    is_drawn[order[places]] = True
    return _kept_in_training(is_drawn, target, rng) if stratify and not is_regression else is_drawn


def _kept_in_training(
    is_drawn: NDArray[np.bool_], target: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Leave one record of each class that was drawn whole, and draw one of the most frequent class in its place."""
    classes = np.unique(target, return_inverse=True)[1]
    left = np.bincount(classes[~is_drawn], minlength=classes.max() + 1)
    is_drawn = is_drawn.copy()
    for lacking in np.flatnonzero(left == 0):
        most = int(left.argmax())
        if left[most] < 2:
            break
        is_drawn[rng.choice(np.flatnonzero(is_drawn & (classes == lacking)))] = False
        is_drawn[rng.choice(np.flatnonzero(~is_drawn & (classes == most)))] = True
        left[lacking], left[most] = 1, left[most] - 1
    return is_drawn


def _of_subjects(
    target: NDArray[np.float64],
    groups: Rows,
    test_share: float,
    rng: np.random.Generator,
    is_regression: bool,
    stratify: bool,
) -> NDArray[np.bool_]:
    from sklearn.model_selection import StratifiedGroupKFold

    subjects = len(np.unique(groups))
    if subjects < 2:
        raise ValueError("all records belong to one subject (task.table.group), and cannot be split; give several.")
    num_test, folds = _folds(test_share, min(_MOST_FOLDS, subjects))
    strata = _strata(target, is_regression, test_share) if stratify else None
    if strata is None or np.bincount(strata).max() < folds:
        strata = np.zeros(len(target), dtype=np.int64)
    seed = int(rng.integers(2**32))
    cut = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Of few subjects a class may have fewer records than there are folds.
        warnings.simplefilter("ignore", UserWarning)
        tests = [test for _, test in cut.split(groups, strata, groups)]
    return np.isin(np.arange(len(target)), np.concatenate(tests[:num_test]))


def _folds(test_share: float, most: int) -> tuple[int, int]:
    """Return how many of how many folds, at most so many, are the test set."""
    nearest = Fraction(test_share).limit_denominator(most)
    nearest = min(max(nearest, Fraction(1, most)), Fraction(most - 1, most))
    return nearest.numerator, nearest.denominator


def _strata(target: NDArray[np.float64], is_regression: bool, test_share: float) -> Rows | None:
    """Return the stratum of each record; None where there are too few records for any."""
    n = len(target)
    num_test = math.ceil(test_share * n)
    if is_regression:
        count = min(_MOST_STRATA, num_test, n - num_test, n // 2)
        if count < 2:
            return None
        edges = np.quantile(target, np.linspace(0, 1, count + 1)[1:-1])
        found = np.searchsorted(edges, target, side="right")
    else:
        found = np.unique(target, return_inverse=True)[1]
    counts = np.bincount(found)
    # A class of one record cannot be on both sides: it goes with the most frequent one.
    found = np.where(counts[found] < 2, counts.argmax(), found)
    return found.astype(np.int64) if 1 < len(np.unique(found)) <= min(num_test, n - num_test) else None
