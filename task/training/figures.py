"""Figures of a test: a client's own, of bootstrap resamples, and as sums that add up over clients."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from florets.task.tested import PartSums
from florets.task.training.scores import Curve, area
from florets.task.wire.evaluation import BINS, MIN_RECORDS, MOST_CURVES, REPLICATES, places

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_AT_ONCE = 2_000_000
"""Weights of resamples that are in memory together: 16 MB."""


class ClassFigures:
    """Accuracy, balanced accuracy, area under the curve, macro F1 and log loss, of logits (n, C).

    Of more than two classes the area is the mean over those classes that have records and lack some, each against the
    others by its margin over their log-sum-exp, which orders as the probability does.

    Source: the definitions of scikit-learn's metrics of the same names; roc_auc_score with ``multi_class="ovr"``.
    """

    def __init__(self, outputs: FloatArray, labels: IntArray, curves: bool = True) -> None:
        predicted = outputs.argmax(axis=1)
        self.losses = log_losses(outputs, labels)
        self._right = (predicted == labels).astype(np.float64)
        classes, codes = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
        self._width, self._labels, self._predicted = len(classes), codes[: len(labels)], codes[len(labels) :]
        self._curves = [Curve(score, positive) for score, positive in margins(outputs, labels)] if curves else []

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
    """R2, mean absolute error and root of the mean squared error of a regression, of finite values (n,)."""

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
    """Return for each class the logit of its probability (n,), and which records are its own; of two class 1's."""
    if outputs.shape[1] == 2:
        return [(outputs[:, 1] - outputs[:, 0], labels == 1)]
    found = []
    for own in range(outputs.shape[1]):
        others = np.delete(outputs, own, axis=1)
        highest = others.max(axis=1)
        rest = np.log(np.exp(others - highest[:, None]).sum(axis=1)) + highest
        found.append((outputs[:, own] - rest, labels == own))
    return found


def binned_area(own: NDArray[np.number], others: NDArray[np.number]) -> FloatArray:
    """Return the area under the curve (...,) from counts (..., bins) in narrow bins, nearer than `area` does.

    Within a bin densities are linear, with the slope between its neighbours: of 1 + a (x - 1/2) and 1 + b (x - 1/2)
    the first is higher with probability 1/2 + (a - b) / 12.
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


_FURTHEST = 16.0


def resampling(x: NDArray[np.generic], y: NDArray[np.generic]) -> np.random.Generator:
    """Return the generator that resamples a client's records, seeded by a SHA-256 of all their bytes.

    The resamples of every method are so the same, and their replicates paired; and the server cannot know them, by
    which it could solve for single records.
    """
    digest = hashlib.sha256()
    for values in (y, x):
        digest.update(np.ascontiguousarray(values).data)
    return np.random.default_rng(int.from_bytes(digest.digest(), "little"))


def sums_of(
    outputs: NDArray[np.floating], targets: NDArray[np.generic], num_classes: int, generator: np.random.Generator
) -> PartSums | None:
    """Return the sums of one test of logits (n, C), or, with `num_classes` 0, values (n, 1)."""
    if len(targets) < MIN_RECORDS or not np.isfinite(outputs).all():
        return None
    values = outputs.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        found = (
            _of_classes(values, targets.astype(np.int64), generator)
            if num_classes
            else _of_values(values.reshape(len(targets)), targets.astype(np.float64), generator)
        )
    largest = np.finfo(np.float32).max
    sent = [*found.sums, *found.deviations, *found.figures[np.isfinite(found.figures)]]
    fits = np.isfinite(sent).all() and np.abs(sent).max() < largest and not np.isinf(found.replicates).any()
    return found if fits else None


def target_sums(y: NDArray[np.generic], num_classes: int) -> FloatArray:
    """Return the sums of training targets: counts of each class (C,); or number, mean and sum of squares (3,)."""
    if num_classes:
        return np.bincount(y.astype(np.int64), minlength=num_classes).astype(np.float64)
    values = y.astype(np.float64)
    return np.array([len(values), values.mean(), np.square(values - values.mean()).sum()])


def _of_classes(outputs: FloatArray, labels: IntArray, generator: np.random.Generator) -> PartSums:
    width, has_curves = outputs.shape[1], outputs.shape[1] <= MOST_CURVES
    figures = ClassFigures(outputs, labels, has_curves)
    cells, counts = np.unique(labels * width + outputs.argmax(axis=1), return_counts=True)
    curves = margins(outputs, labels) if has_curves else ()
    return PartSums(
        figures=figures.under(np.ones((1, len(labels))))[0],
        replicates=_replicated(figures, len(labels), generator),
        sums=np.array([figures.losses.sum()]),
        confusion=np.stack([cells // width, cells % width, counts], axis=1).astype(np.int32),
        histogram=np.array([histogram(*curve) for curve in curves], dtype=np.int32).reshape(-1, 2, BINS),
        deviations=np.empty(0),
    )


def _of_values(predicted: FloatArray, targets: FloatArray, generator: np.random.Generator) -> PartSums:
    figures, mean = ValueFigures(predicted, targets), float(targets.mean())
    squares = float(np.square(targets - mean).sum())
    errors = figures.errors
    at = places(mean, squares, len(targets))
    return PartSums(
        figures=figures.under(np.ones((1, len(targets))))[0],
        replicates=_replicated(figures, len(targets), generator),
        sums=np.array([mean, squares, np.square(errors).sum(), np.abs(errors).sum()]),
        confusion=np.empty((0, 3), dtype=np.int32),
        histogram=np.empty((0, 2, BINS), dtype=np.int32),
        deviations=np.array([np.abs(targets - place).sum() for place in at]),
    )


def _replicated(
    figures: ClassFigures | ValueFigures, num_records: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    return replicates(figures, num_records, REPLICATES, generator).astype(np.float32)


def histogram(scores: FloatArray, positive: NDArray[np.bool_]) -> IntArray:
    """Return how many records of each kind, others and the class's own, have their score in each bin: (2, `BINS`).

    Scores are logits of a class's probability (n,). The bins have equal widths in asinh(logit) up to logits of 16
    either way. A pooled area (`binned_area`) is within 0.002 of the exact one (tests/test_statistics_sums.py).
    """
    reach = np.arcsinh(_FURTHEST)
    place = np.floor((np.arcsinh(scores) / reach + 1) / 2 * BINS)
    bins = np.clip(place, 0, BINS - 1).astype(np.int64)
    return np.bincount(bins + BINS * positive, minlength=2 * BINS).reshape(2, BINS)
