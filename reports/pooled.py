"""Sums of the clients' last tests, as ``tests.json`` holds them: figures over all records together, and a constant's.

The mean of the clients' own figures says little where clients have few test records: R2, AUC and F1 of ten records
are mostly noise. Sums add up, and give the figure of all records as if they lay in one place.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from florets.reports.scores import Part, scores_of, tests_of
from florets.task.tested import Evaluation, PartSums
from florets.task.training.figures import binned_area
from florets.task.wire.evaluation import BINS, CLASS_MEASURES, TRAIN, VALUE_MEASURES, places

FloatArray = npt.NDArray[np.float64]
Measure = Literal["accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss", "r2", "mae", "rmse"]

FILE = "tests.json"
"""Written where the run has `statistics=true`."""
_SUMS = ("sums", "confusion", "deviations")


@dataclass(frozen=True, eq=False)
class PartStatistics:
    """One test on one client, of `n` records."""

    n: int
    scores: Mapping[str, float]
    """The client's own figures by measure, and ``loss``, where they are defined."""
    sums: PartSums | None = None
    """None where the client sends none, its model diverged, or there are fewer than `MIN_RECORDS` records."""

    @property
    def replicates(self) -> dict[str, npt.NDArray[np.float32]]:
        """Bootstrap replicates (`REPLICATES`,) of the client's own figures by measure; NaN: undefined.

        Replicate b of every method's test is of the same resample of the client's records.
        """
        if self.sums is None:
            return {}
        return dict(zip(_measures(self.sums), self.sums.replicates.T, strict=True))


@dataclass(frozen=True, eq=False)
class TestStatistics:
    """All that one client sent of its last tests."""

    # Not a test, whatever the name says to pytest.
    __test__ = False

    parts: Mapping[Part, PartStatistics] = field(default_factory=dict)
    """Those that the run has."""
    train: FloatArray | None = None
    """Of the training targets: samples of each class (C,), or number, mean and sum of squared deviations (3,)."""


def statistics_of(evaluations: Mapping[str, Evaluation]) -> dict[str, TestStatistics]:
    """Return the statistics of each client, by key."""
    found = {}
    for key, evaluation in evaluations.items():
        parts = {
            part: PartStatistics(test.num_examples, _scores(test), test.sums)
            for part, test in tests_of(evaluation).items()
        }
        found[key] = TestStatistics(parts, evaluation.train)
    return found


def _scores(test: Evaluation) -> dict[str, float]:
    own = {} if test.sums is None else dict(zip(_measures(test.sums), map(float, test.sums.figures), strict=True))
    return {name: value for name, value in (own | scores_of(test)).items() if math.isfinite(value)}


def _measures(sums: PartSums) -> tuple[str, ...]:
    return VALUE_MEASURES if len(sums.deviations) else CLASS_MEASURES


def to_json(statistics: Mapping[str, TestStatistics]) -> str:
    """Return the text of ``tests.json``: by client each part's ``n``, ``scores``, ``sums`` and ``replicates``.

    ``train`` is in addition to the parts. What is not defined is null.
    """
    stored = {
        key: {name: _plain(part) for name, part in client.parts.items()}
        | {TRAIN: None if client.train is None else client.train.tolist()}
        for key, client in sorted(statistics.items())
    }
    return json.dumps(stored, allow_nan=False, separators=(",", ":")) + "\n"


def _plain(part: PartStatistics) -> dict[str, Any]:
    sums: dict[str, Any] | None = None
    if part.sums is not None:
        counts = part.sums.histogram
        cells = np.flatnonzero(counts)
        sums = {name: getattr(part.sums, name).tolist() for name in _SUMS}
        # Most bins are empty.
        sums["histogram"] = {"curves": len(counts), "cells": cells.tolist(), "counts": counts.ravel()[cells].tolist()}
    replicates = {
        name: values.tolist() if np.isfinite(values).all() else list(map(_number, values.tolist()))
        for name, values in part.replicates.items()
    }
    return {"n": part.n, "scores": dict(part.scores), "sums": sums, "replicates": replicates or None}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def read_test_statistics(folder: Path) -> dict[str, TestStatistics]:
    """Return the statistics in a run's folder, by client; nothing where the run has none."""
    path = folder / FILE
    if not path.is_file():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {
        key: TestStatistics(
            {name: _part(values) for name, values in client.items() if name != TRAIN},
            None if client[TRAIN] is None else np.array(client[TRAIN], dtype=np.float64),
        )
        for key, client in stored.items()
    }


def _part(values: Mapping[str, Any]) -> PartStatistics:
    scores, stored = values["scores"], values["sums"]
    if stored is None:
        return PartStatistics(values["n"], scores)
    measures = VALUE_MEASURES if stored["deviations"] else CLASS_MEASURES
    columns = [np.array(values["replicates"][name], dtype=np.float32) for name in measures]
    filled = stored["histogram"]
    histogram = np.zeros((filled["curves"], 2, BINS), dtype=np.int32)
    histogram.ravel()[filled["cells"]] = filled["counts"]
    sums = PartSums(
        figures=np.array([scores.get(name, np.nan) for name in measures], dtype=np.float64),
        replicates=np.stack(columns, axis=1),
        sums=np.array(stored["sums"], dtype=np.float64),
        confusion=np.array(stored["confusion"], dtype=np.int32).reshape(-1, 3),
        histogram=histogram,
        deviations=np.array(stored["deviations"], dtype=np.float64),
    )
    return PartStatistics(values["n"], scores, sums)


def with_sums(statistics: Mapping[str, TestStatistics], part: Part = "test") -> dict[str, PartStatistics]:
    """Return the tests on one part, by client, of those that sent sums."""
    found = {key: client.parts.get(part) for key, client in statistics.items()}
    return {key: test for key, test in found.items() if test is not None and test.sums is not None}


def pooled(tests: Iterable[PartStatistics], measure: Measure) -> float:
    """Return a figure over the records of several tests together; NaN where it is not defined.

    Tests without sums do not count: compare `with_sums` with all clients first. All figures are exact to rounding,
    but for the area under the curve, which is taken from counts in narrow bins (`training.sums.histogram`). It
    compares records of different clients with one another, too; of more than two classes it is the mean over classes,
    each against the others, and NaN for more than `MOST_CURVES` classes.
    """
    known = [(test.n, test.sums) for test in tests if test.sums is not None]
    sums = [own for _, own in known]
    if not sums or measure not in _measures(sums[0]):
        return math.nan
    count = sum(n for n, _ in known)
    if measure == "auc":
        counts = np.sum([own.histogram for own in sums], axis=0)
        areas = binned_area(counts[:, 1], counts[:, 0])
        return float(areas[np.isfinite(areas)].mean()) if np.isfinite(areas).any() else math.nan
    if measure in CLASS_MEASURES:
        return _class_figure(_table(sums), float(sum(own.sums[0] for own in sums)) / count, measure)
    errors, absolute = (float(sum(own.sums[column] for own in sums)) for column in (2, 3))
    return _value_figure(errors, absolute, _total(known), count, measure)


_POWERS = {"accuracy": 1, "log_loss": 1, "rmse": 2}
"""Figures that are means over records, and the power whose mean they are the root of."""


def pooled_figures(statistics: Mapping[str, TestStatistics]) -> dict[str, float]:
    """Return the usual figures over all test records, and how many ``clients`` they are of; empty without any.

    R2 and the area under the curve are those of the clients that sent sums. Means over records need no sums: they are
    of all clients where each has the scores.
    """
    tests = with_sums(statistics)
    names: tuple[Measure, ...] = ("accuracy", "log_loss", "auc", "r2", "rmse")
    figures: dict[str, float] = {name: one for name in names if math.isfinite(one := pooled(tests.values(), name))}
    every = [test for client in statistics.values() if (test := client.parts.get("test")) is not None and test.n]
    powers = {name: power for name, power in _POWERS.items() if name in figures}
    if powers and all(powers.keys() <= test.scores.keys() for test in every):
        weights = [test.n for test in every]
        for name, power in powers.items():
            mean = np.average([test.scores[name] ** power for test in every], weights=weights)
            figures[name] = float(mean ** (1 / power))
        return {"clients": len(every), **figures}
    return {"clients": len(tests), **figures} if figures else {}


def total_squares(tests: Iterable[PartStatistics]) -> float:
    """Return the sum of squared deviations of all targets from their common mean; 0 where no test has sums."""
    known = [(test.n, test.sums) for test in tests if test.sums is not None]
    return _total(known) if known else 0.0


@dataclass(frozen=True)
class Constant:
    """A figure of the constant answer: over all records together, and by client."""

    pooled: float
    clients: Mapping[str, float]


def constant(statistics: Mapping[str, TestStatistics], measure: Measure, part: Part = "test") -> Constant:
    """Return the figure of the answer that does not look at its input.

    It is the class that is most frequent in the training records of all clients together, the lowest of several; its
    probabilities are the shares of the classes there; of values it is their mean there. The area under its curve is
    0.5. A figure that is not defined is NaN, the log loss of a class that no training record has infinite. The mean
    absolute error is interpolated between `DEVIATIONS` places, at most 0.2 % too large where targets are
    spread as a normal distribution is; all others are exact.
    """
    tests, trains = with_sums(statistics, part), [one.train for one in statistics.values() if one.train is not None]
    sums = {key: (test.n, test.sums) for key, test in tests.items() if test.sums is not None}
    if not sums or measure not in _measures(next(iter(sums.values()))[1]):
        return Constant(math.nan, dict.fromkeys(sums, math.nan))
    if measure in CLASS_MEASURES:
        train = np.sum(trains, axis=0)
        counts = {key: _table([own], len(train)).sum(axis=1) for key, (_, own) in sums.items()}
        figures = {key: _constant_class(own, train, measure) for key, own in counts.items()}
        return Constant(_constant_class(np.sum(list(counts.values()), axis=0), train, measure), figures)
    answer = float(np.average([own[1] for own in trains], weights=[own[0] for own in trains]))
    figures = {key: _constant_value([own], answer, measure) for key, own in sums.items()}
    return Constant(_constant_value(list(sums.values()), answer, measure), figures)


def _table(sums: Iterable[PartSums], width: int = 0) -> FloatArray:
    """Return how often each class (rows) was taken for each (columns)."""
    cells = np.concatenate([own.confusion for own in sums]).astype(np.int64)
    width = max(width, int(cells[:, :2].max(initial=-1)) + 1)
    table = np.bincount(cells[:, 0] * width + cells[:, 1], weights=cells[:, 2], minlength=width**2)
    return table.reshape(width, width).astype(np.float64)


def _class_figure(table: FloatArray, log_loss: float, measure: Measure) -> float:
    right, there, named = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    if measure == "log_loss":
        return log_loss
    if measure == "accuracy":
        return float(right.sum() / there.sum())
    if measure == "balanced_accuracy":
        return float((right / np.maximum(there, 1)).sum() / np.count_nonzero(there))
    return float((2 * right / np.maximum(there + named, 1)).sum() / np.count_nonzero(there + named))


def _constant_class(counts: FloatArray, train: FloatArray, measure: Measure) -> float:
    """Return a figure for test records of so many of each class (C,) and so many training records."""
    if measure == "auc":
        return 0.5 if np.count_nonzero(counts) > 1 else math.nan
    table = np.zeros((len(counts), len(counts)))
    table[:, int(train.argmax())] = counts
    there = counts > 0
    with np.errstate(divide="ignore"):
        logs = np.log(train[there] / train.sum())
    return _class_figure(table, float(-(counts[there] @ logs) / counts.sum()), measure)


def _moments(known: Iterable[tuple[int, PartSums]]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return number, mean and sum of squared deviations of each test's targets."""
    counts, means, squares = np.array([(n, own.sums[0], own.sums[1]) for n, own in known], dtype=np.float64).T
    return counts, means, squares


def _total(known: Sequence[tuple[int, PartSums]]) -> float:
    counts, means, squares = _moments(known)
    return float(squares.sum() + counts @ np.square(means - np.average(means, weights=counts)))


def _constant_value(known: list[tuple[int, PartSums]], answer: float, measure: Measure) -> float:
    counts, means, squares = _moments(known)
    spread = _total(known)
    errors = float(squares.sum() + counts @ np.square(means - answer))
    absolute = sum(_deviation(n, own, answer) for n, own in known)
    return _value_figure(errors, absolute, spread, int(counts.sum()), measure)


def _deviation(count: int, sums: PartSums, answer: float) -> float:
    """Return the sum of the targets' absolute deviations from an answer, see `PartSums.deviations`."""
    at = places(float(sums.sums[0]), float(sums.sums[1]), count)
    beyond = max(float(at[0]) - answer, answer - float(at[-1]), 0.0)
    within = float(np.interp(answer, at, sums.deviations)) if at[0] < at[-1] else float(sums.deviations[0])
    return within + count * beyond


def _value_figure(errors: float, absolute: float, spread: float, count: int, measure: Measure) -> float:
    if measure == "mae":
        return absolute / count
    if measure == "rmse":
        return math.sqrt(errors / count)
    return 1 - errors / spread if spread > 0 else math.nan
