"""Measures of predictions: which suits the data, which direction is better, and how figures are written."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from florets.reports.pooled import Measure

FloatArray = npt.NDArray[np.float64]
Name = Literal["accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss", "r2", "mae", "rmse", "loss"]
"""Measures that a run may choose, and the training loss for tasks that have none of them."""

RARE = 0.2
"""Fraction of a site's records below which one of two classes is rare."""


@dataclass(frozen=True)
class Form:
    """How a measure is read and written; with `percent` differences are percentage points."""

    title: str
    higher: bool
    percent: bool
    digits: str
    meaning: str


FORMS: dict[Name, Form] = {
    "accuracy": Form("accuracy", True, True, ".1f", "The fraction of records that are classified correctly."),
    "balanced_accuracy": Form(
        "balanced accuracy", True, True, ".1f",
        "The fraction of each class that is classified correctly, averaged over the classes. Always answering the "
        "most frequent class scores 50 % with two classes.",
    ),
    "auc": Form(
        "AUC", True, False, ".3f",
        "Area under the ROC curve: the probability that a record of the class gets a higher score than one outside "
        "it. 0.5 is chance, 1 is perfect.",
    ),
    "macro_f1": Form("macro F1", True, False, ".3f", "F1 (precision and recall), averaged over the classes."),
    "log_loss": Form("log loss", False, False, ".4g", "Minus the log of the probability given to the true class."),
    "r2": Form(
        "R2", True, False, ".3f",
        "The fraction of the target's variance that is explained. 0 is what the mean scores; 1 is perfect; below 0 "
        "is worse than the mean.",
    ),
    "mae": Form("mean absolute error", False, False, ".4g", "The mean absolute error, in the target's unit."),
    "rmse": Form("RMSE", False, False, ".4g", "The root of the mean squared error, in the target's unit."),
    "loss": Form("loss", False, False, ".4g", "The mean training loss per record."),
}  # fmt: skip

OF_CLASSES: tuple[Name, ...] = ("accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss")
OF_VALUES: tuple[Name, ...] = ("r2", "mae", "rmse")
NOT_ADDITIVE: tuple[Name, ...] = ("balanced_accuracy", "auc", "macro_f1", "r2")
"""Measures that say little of a handful of records: with few test records per site they are taken over all sites."""


def suitable(is_regression: bool, counts: Collection[FloatArray]) -> Name:
    """Return the measure for data: R2 for values; AUC where one of two classes is rare anywhere; else accuracy."""
    if is_regression:
        return "r2"
    return "auc" if rare_share(counts) < RARE else "accuracy"


def rare_share(counts: Collection[FloatArray]) -> float:
    """Return the smallest share of one of two classes at a site that has both; 1 where there is none."""
    shares = [float(own.min() / own.sum()) for own in counts if len(own) == 2 and own.min() > 0]
    return min(shares, default=1.0)


SECOND: dict[Name, Name] = {"auc": "balanced_accuracy", "r2": "rmse"}
"""The second measure of a table, where there is one."""


def for_stopping(measure: Name) -> Measure:
    """Return the measure by which rounds and learning rates are chosen.

    An accuracy of a few validation records moves in steps, where the log loss says more. The loss itself has no name
    as a measure and is proportional to the squared error of values.
    """
    if measure == "accuracy":
        return "log_loss"
    return "rmse" if measure == "loss" else measure


def is_better(first: float, second: float, measure: Name) -> bool:
    """Say whether a figure is better than another; one that is not finite is better than none."""
    if not math.isfinite(first) or not math.isfinite(second):
        return math.isfinite(first)
    return first > second if FORMS[measure].higher else first < second


def gain(first: float, second: float, measure: Name) -> float:
    """Return how much better the first figure is, positive if it is: in points where the measure has percentages."""
    form = FORMS[measure]
    return (1 if form.higher else -1) * (100 if form.percent else 1) * (first - second)


def value(number: float, measure: Name) -> str:
    """Return a figure as it is written."""
    form = FORMS[measure]
    if not math.isfinite(number):
        return "-"
    return f"{100 * number:{form.digits}} %" if form.percent else f"{number:{form.digits}}"


def named(number: float, measure: Name) -> str:
    """Return a figure with its measure's name, for a sentence."""
    return f"{FORMS[measure].title} {value(number, measure)}"


def amount(mean: float, half: float, measure: Name, sign: bool = False) -> str:
    """Return a difference with the half width of its interval, and its unit where it has one."""
    form = FORMS[measure]
    digits = form.digits.replace("4g", "3g")
    # No minus in front of what is rounded to 0.
    mean = float(f"{mean:{digits}}") + 0.0
    interval = f" ± {half:{digits}}" if math.isfinite(half) else ""
    return f"{mean:{'+' if sign else ''}{digits}}{interval}{' points' if form.percent else ''}"
