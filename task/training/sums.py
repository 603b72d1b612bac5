"""Sums of a test that add up over clients, and bootstrap replicates of a client's own figures."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from florets.task.training.figures import ClassFigures, ValueFigures, margins, replicates
from florets.task.wire.sums import BINS, MIN_RECORDS, MOST_CURVES, REPLICATES, PartSums, places

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FURTHEST = 16.0


def resampling(x: NDArray[np.generic], y: NDArray[np.generic]) -> np.random.Generator:
    """Return the generator that resamples a client's records, seeded by a SHA-256 of all their bytes.

    A client so draws the same resamples in the run of every method on the same data: replicates of two methods are
    paired, and their difference has the spread that a comparison needs. The server cannot know which records were
    drawn: from figures of known resamples it could solve for single records. A seed that it sent, or one from the
    client's name, would tell it.

    Single records are resampled, also where several belong to one subject: the spread of the replicates is then too
    small. Subjects of test records are not known here.
    """
    digest = hashlib.sha256()
    for values in (y, x):
        digest.update(np.ascontiguousarray(values).data)
    return np.random.default_rng(int.from_bytes(digest.digest(), "little"))


def sums_of(
    outputs: NDArray[np.floating], targets: NDArray[np.generic], num_classes: int, generator: np.random.Generator
) -> PartSums | None:
    """Return the sums of one test; None where the model diverged, or a figure is too large to be sent.

    None too of fewer than `wire.sums.MIN_RECORDS` records.

    Parameters
    ----------
    outputs
        Logits (n, C), or values (n, 1).
    targets
        Classes (n,), or values.
    num_classes
        C; 0: the targets are values.
    generator
        See `resampling`.
    """
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

    Parameters
    ----------
    scores
        Logits of a class's probability (n,).
    positive
        Which records are the class's own.

    Notes
    -----
    The bins are the same for all clients and models, so that counts add up. They have equal widths in asinh(logit) up
    to logits of 16 either way: a width of 0.014 around a probability of one half, and of 1.4 % of the logit far from
    it. So scores may lie anywhere and close together, as those of a model that is trained little or of a rare class
    do. Measured with 2,000 records and more, a pooled area under the curve (`figures.binned_area`) is within 0.002
    of the exact one for logits with a spread of 0.3 to 8 around 0, -1.5 and -4, and within 0.006 for one of 0.1
    (tests/test_statistics_sums.py).
    """
    reach = np.arcsinh(_FURTHEST)
    place = np.floor((np.arcsinh(scores) / reach + 1) / 2 * BINS)
    bins = np.clip(place, 0, BINS - 1).astype(np.int64)
    return np.bincount(bins + BINS * positive, minlength=2 * BINS).reshape(2, BINS)
