"""Figures of a test under weights of its records: a client's own, and those of bootstrap resamples."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_AT_ONCE = 2_000_000
"""Weights of resamples that are in memory together: 16 MB."""


class ClassFigures:
    """Accuracy, balanced accuracy, area under the curve, macro F1 and log loss of a classifier.

    Parameters
    ----------
    outputs
        Logits (n, C), finite.
    labels
        Classes (n,).
    curves
        Whether areas under the curve are taken.

    Notes
    -----
    Of more than two classes the area is the mean over those classes that have records and lack some, each against
    the others by its margin over their log-sum-exp, which orders as the probability does.

    Source: the definitions of scikit-learn's metrics of the same names; roc_auc_score with ``multi_class="ovr"``.
    """

    def __init__(self, outputs: FloatArray, labels: IntArray, curves: bool = True) -> None:
        predicted = outputs.argmax(axis=1)
        self.losses = log_losses(outputs, labels)
        self._right = (predicted == labels).astype(np.float64)
        classes, codes = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
        self._width, self._labels, self._predicted = len(classes), codes[: len(labels)], codes[len(labels) :]
        self._curves = [_Curve(score, positive) for score, positive in margins(outputs, labels)] if curves else []

    def under(self, weights: FloatArray) -> FloatArray:
        """Return the five figures (b, 5) under each row of weights (b, n), NaN where one is not defined."""
        total = weights.sum(axis=1)
        there, named = self._by_class(weights, self._labels), self._by_class(weights, self._predicted)
        correct = self._by_class(weights * self._right, self._labels)
        with np.errstate(invalid="ignore", divide="ignore"):
            recalls = np.where(there > 0, correct / there, 0.0).sum(axis=1) / (there > 0).sum(axis=1)
            f1 = np.where(there + named > 0, 2 * correct / (there + named), 0.0).sum(axis=1)
            f1 /= (there + named > 0).sum(axis=1)
            areas = np.stack([curve.under(weights) for curve in self._curves]) if self._curves else np.empty((0, 1))
            known = np.isfinite(areas)
            area = np.where(known, areas, 0.0).sum(axis=0) / known.sum(axis=0)
        columns = (correct.sum(axis=1) / total, recalls, area, f1, weights @ self.losses / total)
        return np.stack(np.broadcast_arrays(*columns), axis=1)

    def _by_class(self, weights: FloatArray, codes: IntArray) -> FloatArray:
        cells = codes + self._width * np.arange(len(weights))[:, None]
        sums = np.bincount(cells.ravel(), weights=weights.ravel(), minlength=len(weights) * self._width)
        return sums.reshape(len(weights), self._width).astype(np.float64)


class ValueFigures:
    """R2, mean absolute error and root of the mean squared error of a regression.

    Parameters
    ----------
    predicted, targets
        Values (n,), finite.
    """

    def __init__(self, predicted: FloatArray, targets: FloatArray) -> None:
        self.errors = predicted - targets
        # About their mean, so that no digits are lost in the sum of squares.
        self._targets = targets - targets.mean()
        self._least = 1e-12 * float(np.square(self._targets).sum()) if len(targets) else 0.0

    def under(self, weights: FloatArray) -> FloatArray:
        """Return the three figures (b, 3) under each row of weights (b, n), NaN where one is not defined."""
        total = weights.sum(axis=1)
        squares = weights @ np.square(self.errors)
        spread = weights @ np.square(self._targets) - np.square(weights @ self._targets) / total
        # Of one value, however often it was drawn, rounding alone leaves a spread.
        known = spread > self._least
        r2 = np.where(known, 1 - squares / np.where(known, spread, 1.0), np.nan)
        return np.stack([r2, weights @ np.abs(self.errors) / total, np.sqrt(squares / total)], axis=1)


def replicates(
    figures: ClassFigures | ValueFigures, num_records: int, count: int, generator: np.random.Generator
) -> FloatArray:
    """Return the figures (count, F) of so many resamples of the records, drawn with replacement."""
    rows, found = max(1, _AT_ONCE // num_records), []
    for begin in range(0, count, rows):
        size = min(rows, count - begin)
        drawn = generator.integers(num_records, size=(size, num_records))
        cells = drawn + num_records * np.arange(size)[:, None]
        weights = np.bincount(cells.ravel(), minlength=size * num_records).reshape(size, num_records)
        found.append(figures.under(weights.astype(np.float64)))
    return np.concatenate(found)


def log_losses(outputs: FloatArray, labels: IntArray) -> FloatArray:
    """Return the log loss of each record (n,), in nats, from logits (n, C)."""
    highest = outputs.max(axis=1)
    sums = np.log(np.exp(outputs - highest[:, None]).sum(axis=1)) + highest
    losses: FloatArray = sums - outputs[np.arange(len(labels)), labels]
    return np.maximum(losses, 0.0)


def margins(outputs: FloatArray, labels: IntArray) -> Sequence[tuple[FloatArray, NDArray[np.bool_]]]:
    """Return for each class the logit of its probability (n,), and which records are its own.

    Of two classes that is of class 1 alone.
    """
    if outputs.shape[1] == 2:
        return [(outputs[:, 1] - outputs[:, 0], labels == 1)]
    found = []
    for own in range(outputs.shape[1]):
        others = np.delete(outputs, own, axis=1)
        highest = others.max(axis=1)
        rest = np.log(np.exp(others - highest[:, None]).sum(axis=1)) + highest
        found.append((outputs[:, own] - rest, labels == own))
    return found


class _Curve:
    """The area under one curve: how often a record of the class has the higher score; ties count half."""

    def __init__(self, scores: FloatArray, positive: NDArray[np.bool_]) -> None:
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
    """Return the area under the curve (...,) from the counts (..., bins) of either kind in bins of rising scores.

    NaN where there are none of a kind. Records in one bin count as tied.
    """
    own, others = own.astype(np.float64), others.astype(np.float64)
    below = np.cumsum(others, axis=-1) - others / 2
    pairs = own.sum(axis=-1) * others.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = (own * below).sum(axis=-1) / np.where(pairs > 0, pairs, np.nan)
    return found


def binned_area(own: NDArray[np.number], others: NDArray[np.number]) -> FloatArray:
    """Return the area under the curve (...,) from counts (..., bins) in narrow bins, nearer than `area` does.

    Within a bin the densities are taken as linear, with the slope between the bin's neighbours, in place of all
    records as tied: of linear densities 1 + a (x - 1/2) and 1 + b (x - 1/2) the first is higher with probability
    1/2 + (a - b) / 12.
    """
    own, others = own.astype(np.float64), others.astype(np.float64)
    pairs = own.sum(axis=-1) * others.sum(axis=-1)
    # Of both bins at the ends one neighbour is missing.
    rise, other_rise = (
        np.diff(values, axis=-1, append=0.0) + np.diff(values, axis=-1, prepend=0.0) for values in (own, others)
    )
    more = (others * rise - own * other_rise).sum(axis=-1) / 24
    found: FloatArray = np.clip(area(own, others) + more / np.maximum(pairs, 1.0), 0.0, 1.0)
    return found
