"""Reply to `evaluate`: a test's loss, accuracy, further scores and sums; how they are carried and checked."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, RecordDict

from florets.task.tested import Evaluation, PartSums
from florets.task.wire import kinds
from florets.task.wire.codec import MAX_EXAMPLES, Form, Item, Loss, Number
from florets.task.wire.flower import filled
from florets.task.wire.records import MalformedMessage

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

RANGES: dict[str, tuple[float, float]] = {
    "balanced_accuracy": (0.0, 1.0),
    "macro_f1": (0.0, 1.0),
    "auc": (0.0, 1.0),
    "log_loss": (0.0, kinds.DIVERGED),
    "r2": (-kinds.DIVERGED, 1.0),
    "mae": (0.0, kinds.DIVERGED),
    "rmse": (0.0, kinds.DIVERGED),
}
_OWN = {"own_score": (-kinds.DIVERGED, kinds.DIVERGED), "own_error": (-kinds.DIVERGED, kinds.DIVERGED)}
# These stand for the validation data as well.
RANGES |= {prefix + name: ends for prefix in ("", kinds.VALIDATED) for name, ends in _OWN.items()}
"""Least and largest value of each score, by the name under which it is sent."""

CLASS_MEASURES = ("accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss")
VALUE_MEASURES = ("r2", "mae", "rmse")
"""Figures of a test of classes, and of values, in the order of the columns of `PartSums.replicates`."""

REPLICATES = 200
BINS = 512
MOST_CURVES = 20
"""Classes up to which a test has histograms."""
DEVIATIONS = 9
REACH = 2.0
"""`PartSums.deviations` are taken at so many places, up to so many standard deviations around the targets' mean.

More places would say where single targets of a small test lie.
"""

MIN_RECORDS = 5
"""Fewest records that a node sends sums of. Sums of one record are that record: the mean of one target is the target.
Of two the mean and the sum of squares give both, of three or four the deviations nearly do."""

PARTS = ("test", "validation", "tuned_test", "tuned_validation")
"""Tests that a reply may hold: of the model and of a fine-tuned copy, on both parts of the data."""
TRAIN = "train"
_LARGEST = kinds.DIVERGED
_ROUNDING = 1e-6
_LOSS_ROUNDING = 1e-3
"""Losses are computed in float32, and the sum of log losses in float64 from the same outputs."""


_TYPES = {
    "figures": "<f8",
    "replicates": "<f4",
    "sums": "<f8",
    "confusion": "<i4",
    "histogram": "<i4",
    "deviations": "<f8",
}


def places(mean: float, squares: float, count: int) -> FloatArray:
    """Return the places of `PartSums.deviations` (`DEVIATIONS`,) for targets of this mean and sum of squares."""
    reach: FloatArray = np.linspace(-REACH, REACH, DEVIATIONS)
    return mean + reach * float(np.sqrt(squares / count))


def pack_sums(parts: Mapping[str, PartSums], train: FloatArray) -> ConfigRecord:
    """Return the record of sums by the names in `PARTS`, and of the training targets, by class or as moments."""
    sent: dict[str, bytes] = {TRAIN: train.astype("<f8").tobytes()}
    for part, sums in parts.items():
        sent |= {f"{part}/{name}": getattr(sums, name).astype(kind).tobytes() for name, kind in _TYPES.items()}
    return filled(ConfigRecord(), sent)


def read_sums(
    content: RecordDict, num_classes: int, tests: Mapping[str, tuple[int, float, float | None]]
) -> tuple[dict[str, PartSums], FloatArray | None]:
    """Return the sums of a reply by part, which must fit the `tests` that it tells, and of the training targets."""
    record = content.get(kinds.TEST_SUMS)
    if record is None:
        return {}, None
    sent: Mapping[str, Any] = record if isinstance(record, ConfigRecord) else {}
    parts = [part for part in tests if f"{part}/figures" in sent]
    if sent.keys() != {TRAIN, *(f"{part}/{name}" for part in parts for name in _TYPES)}:
        raise MalformedMessage(f"record {kinds.TEST_SUMS!r} does not hold the sums of {', '.join(tests)}")
    train = _array(sent, TRAIN, "<f8", (num_classes or 3,))
    _check(bool(np.isfinite(train).all()), TRAIN, "is not finite")
    counts = train if num_classes else train[:1]
    _check(bool((counts >= 0).all() and (counts <= _LARGEST).all() and counts.sum() >= 1), TRAIN, "counts nothing")
    _check(bool((counts == np.floor(counts)).all()), TRAIN, "has no integer counts")
    _check(bool(num_classes) or bool(train[2] >= 0 and np.abs(train).max() <= _LARGEST), TRAIN, "cannot be")
    return {part: _read_part(sent, part, num_classes, *tests[part]) for part in parts}, train


def _read_part(
    sent: Mapping[str, Any], part: str, num_classes: int, count: int, loss: float, accuracy: float | None
) -> PartSums:
    measures = CLASS_MEASURES if num_classes else VALUE_MEASURES
    curves = 0 if num_classes > MOST_CURVES else 1 if num_classes == 2 else num_classes
    shapes = {
        "figures": (len(measures),),
        "replicates": (REPLICATES, len(measures)),
        "sums": (1,) if num_classes else (4,),
        "confusion": (-1, 3) if num_classes else (0, 3),
        "histogram": (curves, 2, BINS),
        "deviations": (0,) if num_classes else (DEVIATIONS,),
    }
    found = PartSums(**{name: _array(sent, f"{part}/{name}", _TYPES[name], shape) for name, shape in shapes.items()})
    for name in ("figures", "replicates"):
        values = getattr(found, name)
        # Rounded to float32 the least and the largest value stay within. A NaN passes no comparison, and is allowed.
        least, most = np.array([RANGES.get(measure, (0.0, 1.0)) for measure in measures], dtype=values.dtype).T
        outside = (values < least) | (values > most)
        _check(not outside.any(), f"{part}/{name}", "holds a value out of its range")
    _check(bool(np.isfinite(found.sums).all() and np.abs(found.sums).max() <= _LARGEST), f"{part}/sums", "cannot be")
    if num_classes:
        _check_classes(found, part, num_classes, count, loss, accuracy)
    else:
        _check_values(found, part, count)
    return found


def _check_classes(
    found: PartSums, part: str, num_classes: int, count: int, loss: float, accuracy: float | None
) -> None:
    labels, predicted, counts = found.confusion.astype(np.int64).T
    cells = labels * num_classes + predicted
    _check(
        min(labels.min(initial=0), predicted.min(initial=0)) >= 0
        and max(labels.max(initial=0), predicted.max(initial=0)) < num_classes
        and bool((np.diff(cells) > 0).all() and (counts >= 1).all()),
        f"{part}/confusion",
        "is not sorted, counts nothing, or has other classes than the task",
    )
    _check(counts.sum() == count, f"{part}/confusion", f"does not count the test's {count} records")
    right = counts[labels == predicted].sum() / count
    _check(accuracy is not None and abs(right - accuracy) <= _ROUNDING, f"{part}/confusion", "has another accuracy")
    _check(found.sums[0] >= 0, f"{part}/sums", "cannot be")
    mean = found.sums[0] / count
    _check(abs(mean - loss) <= _LOSS_ROUNDING * (1 + loss), f"{part}/sums", "has another loss")
    if len(found.histogram):
        of_class = np.bincount(labels, weights=counts, minlength=num_classes)
        own = of_class[1:] if num_classes == 2 else of_class
        _check(bool((found.histogram >= 0).all()), f"{part}/histogram", "has negative counts")
        each = found.histogram.sum(axis=2, dtype=np.int64)
        fits = (each[:, 1] == own).all() and (each[:, 0] == count - own).all()
        _check(bool(fits), f"{part}/histogram", "counts other records than the confusion")


def _check_values(found: PartSums, part: str, count: int) -> None:
    mean, squares, errors, absolute = found.sums.tolist()
    _check(min(squares, errors, absolute) >= 0, f"{part}/sums", "has a negative sum of squares")
    # Cauchy-Schwarz, and that a sum of squares is never more than the square of the sum.
    most, least = count * errors, errors
    fits = least * (1 - _ROUNDING) <= absolute**2 <= most * (1 + _ROUNDING)
    _check(fits, f"{part}/sums", "has errors that do not fit each other")
    at = places(mean, squares, count) - mean
    deviations = found.deviations
    _check(
        bool(np.isfinite(deviations).all() and np.abs(deviations).max() <= _LARGEST),
        f"{part}/deviations",
        "cannot be",
    )
    slack = _ROUNDING * count * (abs(mean) + np.sqrt(squares / count) + np.abs(at))
    fits = (deviations >= count * np.abs(at) - slack).all() and (
        deviations <= np.sqrt(count * (squares + count * at**2)) + slack
    ).all()
    _check(bool(fits), f"{part}/deviations", "does not fit mean and spread")


def _array(sent: Mapping[str, Any], name: str, kind: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array of this shape; a first size of -1 is any."""
    value, dtype = sent[name], np.dtype(kind)
    size = int(np.prod(shape))
    if type(value) is not bytes or (
        len(value) % (-size * dtype.itemsize) if size < 0 else len(value) != size * dtype.itemsize
    ):
        raise MalformedMessage(f"{name} is not an array of shape {shape}")
    return np.frombuffer(value, dtype=dtype).astype(dtype.newbyteorder("=")).reshape(shape)


def _check(holds: bool | np.bool_, name: str, rule: str) -> None:
    if not holds:
        raise MalformedMessage(f"{name} {rule}")


def read_evaluation(
    content: RecordDict, tuned: bool = False, validation: bool = False, sums_of: int | None = None
) -> Evaluation:
    """Read a test result, with those of a fine-tuned copy and on validation data where they were asked for."""
    found = _form(tuned, validation, sums_of is not None).read(content, {})
    names = [name for name in PARTS if (tuned or "tuned" not in name) and (validation or "validation" not in name)]
    accuracies = {name: found.get(("accuracy", name)) for name in names}
    if len({accuracy is None for accuracy in accuracies.values()}) > 1:
        raise MalformedMessage(f"{kinds.EVAL_ACCURACY} came for some of its tests only")
    tests = {
        name: (found["count", name.removeprefix("tuned_")], found["loss", name], accuracies[name]) for name in names
    }
    sums, train = ({}, None) if sums_of is None else read_sums(content, sums_of, tests)
    results = {
        name: Evaluation(count, loss, accuracy, sums=sums.get(name))
        for name, (count, loss, accuracy) in tests.items()
    }
    plain, again = results["test"], results.get("tuned_test")
    return replace(
        plain,
        validation=results.get("validation"),
        tuned=None if again is None else replace(again, validation=results.get("tuned_validation")),
        scores=read_scores(content),
        train=train,
    )


_PREFIXES = dict(zip(PARTS, ("", kinds.VALIDATED, kinds.TUNED, kinds.TUNED + kinds.VALIDATED), strict=True))
"""Of the names of a test's metrics, by the test."""


@lru_cache
def _form(tuned: bool, validation: bool, sums: bool) -> Form:
    items: dict[Any, Item] = {}
    for name, prefix in _PREFIXES.items():
        if (tuned or "tuned" not in name) and (validation or "validation" not in name):
            items["loss", name] = Loss(prefix + kinds.EVAL_LOSS)
            items["accuracy", name] = Number(prefix + kinds.EVAL_ACCURACY, 0, 1)
            if "tuned" not in name:
                # Both models are tested on the same samples.
                items["count", name] = Number(prefix + kinds.NUM_EXAMPLES, 1, MAX_EXAMPLES, integer=True)
    optional = frozenset(key for key in items if key[0] == "accuracy")
    return Form(items, optional, others=frozenset({kinds.SCORES, *([kinds.TEST_SUMS] if sums else [])}))


def pack_scores(scores: Mapping[str, float]) -> ConfigRecord:
    """Return the record; a reply carries it under `kinds.SCORES`."""
    # Not among the metrics: Flower's own strategies average those, and need the same ones of every client.
    return filled(ConfigRecord(), scores)


def read_scores(content: RecordDict) -> dict[str, float]:
    """Return the scores of a reply, none where it has none."""
    record = content.get(kinds.SCORES)
    if record is None:
        return {}
    sent: Any = record if isinstance(record, ConfigRecord) else None
    if sent is None or not sent.keys() <= RANGES.keys():
        raise MalformedMessage(f"record {kinds.SCORES!r} holds other things than {', '.join(RANGES)}")
    for name, value in sent.items():
        least, most = RANGES[name]
        # A NaN passes no comparison.
        if type(value) is not float or not least <= value <= most:
            raise MalformedMessage(f"{name} is not a number from {least:g} to {most:g}")
    return {name: sent[name] for name in RANGES if name in sent}
