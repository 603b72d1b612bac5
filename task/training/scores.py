"""Scores of a model on one client's test set, beside its loss and accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from florets.task.imported import Function, imported_for

if TYPE_CHECKING:
    from torch import Tensor

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

BALANCED_ACCURACY, MACRO_F1, AUC = "balanced_accuracy", "macro_f1", "auc"
R2, MAE, RMSE = "r2", "mae", "rmse"
LOG_LOSS = "log_loss"
OWN_SCORE, OWN_ERROR = "own_score", "own_error"
_IN_UNIT = (MAE, RMSE)


Scores = dict[str, float]
"""Scores of a test besides loss and accuracy, by name, without those that its test set does not define."""


def scores_of(outputs: NDArray[np.floating], targets: NDArray[np.generic], loss: str) -> Scores:
    """Return the scores of a model's outputs: logits (n, C) with ``cross_entropy``, else values (n, 1)."""
    if loss != "cross_entropy":
        return value_scores(targets.astype(np.float64), outputs.reshape(len(targets)))
    margins = outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else None
    return class_scores(targets.astype(np.int64), outputs.argmax(axis=1), margins)


def measure_function(path: str) -> Function:
    """Return the user's function of (outputs, targets); raise ValueError if the path leads to none."""
    return imported_for(f"measure={path!r}", path, ("outputs", "targets"))


def name_of(measure: str) -> str:
    """Return the name that a figure has among scores: of a user's function it says which end is good."""
    if ":" not in measure:
        return measure
    return OWN_SCORE if getattr(measure_function(measure), "higher_is_better", True) else OWN_ERROR


def measured(measure: str, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the value of a user's function by name; nothing where it is not finite."""
    value = float(measure_function(measure)(outputs, targets))
    return {name_of(measure): value} if math.isfinite(value) else {}


def class_scores(labels: IntArray, predicted: IntArray, margins: NDArray[np.floating] | None = None) -> Scores:
    """Return balanced accuracy, macro F1 and, of two classes, the area under the ROC curve.

    `margins` (n,) say by how much class 1 of two is preferred; None: there are more. Of balanced accuracy the classes
    count that the test set has, of macro F1 those that were predicted as well.

    Source: the definitions of scikit-learn's balanced_accuracy_score, f1_score and roc_auc_score.
    """
    width = int(max(labels.max(), predicted.max())) + 1
    correct, there, named = (
        np.bincount(counted, minlength=width) for counted in (labels[labels == predicted], labels, predicted)
    )
    # A class that is neither there nor predicted has no recall and no F1, and adds 0 to either sum.
    values = {
        BALANCED_ACCURACY: float((correct / np.maximum(there, 1)).sum() / np.count_nonzero(there)),
        # F1 is 2 TP / (2 TP + FP + FN), and the denominator the samples of the class and those put into it.
        MACRO_F1: float((2 * correct / np.maximum(there + named, 1)).sum() / np.count_nonzero(there + named)),
    }
    if margins is not None and (area := _area_under_curve(labels, margins)) is not None:
        values[AUC] = area
    return values


def _area_under_curve(labels: IntArray, margins: NDArray[np.floating]) -> float | None:
    if not np.isfinite(margins).all():
        return None
    found = float(Curve(margins, labels == 1).under(np.ones((1, len(labels))))[0])
    return None if math.isnan(found) else found


class Curve:
    """The area under one curve: how often a record of the class has the higher score; ties count half."""

    def __init__(self, scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = positive[self._order]
        ranked = scores[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ranked[1:] > ranked[:-1]]))

    def under(self, weights: FloatArray) -> FloatArray:
        """Return the area (b,) under each row of weights (b, n), NaN where all records are of one kind."""
        ranked = weights[:, self._order]
        own = np.add.reduceat(ranked * self._positive, self._starts, axis=1)
        others = np.add.reduceat(ranked * ~self._positive, self._starts, axis=1)
        return area(own, others)


def area(own: NDArray[np.number], others: NDArray[np.number]) -> FloatArray:
    """Return the area under the curve (...,) from counts (..., bins) of either kind by rising scores, or NaN."""
    own, others = own.astype(np.float64), others.astype(np.float64)
    below = np.cumsum(others, axis=-1) - others / 2
    pairs = own.sum(axis=-1) * others.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = (own * below).sum(axis=-1) / np.where(pairs > 0, pairs, np.nan)
    return found


def value_scores(targets: FloatArray, predicted: NDArray[np.floating]) -> Scores:
    """Return coefficient of determination, mean absolute and root mean squared error, where they are defined."""
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = predicted.astype(np.float64) - targets
        error, squares = float(np.abs(residuals).mean()), float(np.square(residuals).sum())
    if not np.isfinite(error) or not np.isfinite(squares):
        return {}
    spread = float(np.square(targets - targets.mean(dtype=np.float64)).sum())
    values = {MAE: error, RMSE: math.sqrt(squares / len(targets))}
    return values if spread == 0 else {R2: 1 - squares / spread, **values}


def in_unit(values: Mapping[str, float], scale: float) -> dict[str, float]:
    """Return scores with the errors times `scale`, which are then in the unit that a regression's targets came in."""
    return {name: value * scale if name in _IN_UNIT else value for name, value in values.items()}
