"""The clients' test results together: mean and spread, the worst of them, quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Literal, NamedTuple, get_args

import numpy as np

from florets.strategies.base.report import Evaluation

HIGHER_IS_BETTER = {
    "accuracy": True,
    "loss": False,
    "balanced_accuracy": True,
    "macro_f1": True,
    "auc": True,
    "log_loss": False,
    "r2": True,
    "mae": False,
    "rmse": False,
    "own_score": True,
    "own_error": False,
}
"""Every score that a client may have, and which end is good."""

WORST = "worst_tenth"
QUANTILES = {"q10": 0.1, "q25": 0.25, "median": 0.5, "q75": 0.75, "q90": 0.9}
FIGURES = ("mean", "std", "weighted", "worst", WORST, *QUANTILES)
"""Figures of each score, besides the number of clients that have it."""


def finite(value: float | None) -> float | None:
    """Return the value, or None where it is not finite: JSON has no NaN, and a mean with one says nothing."""
    return float(value) if value is not None and math.isfinite(value) else None


class Means(NamedTuple):
    """Unweighted mean and spread (population) over clients; None where no client has it, or one has diverged."""

    accuracy: float | None
    accuracy_std: float | None
    loss: float | None
    loss_std: float | None


def means(evaluations: Sequence[Evaluation]) -> Means:
    """Return the mean and the spread of accuracy and loss."""
    accuracies = [e.accuracy for e in evaluations if e.accuracy is not None]
    losses = [e.loss for e in evaluations]
    return Means(
        finite(fmean(accuracies)) if accuracies else None,
        _spread(accuracies),
        finite(fmean(losses)) if losses else None,
        _spread(losses),
    )


def tuned(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Return the tests of the fine-tuned copies; none where the run fine-tunes nothing."""
    return [evaluation.tuned for evaluation in evaluations if evaluation.tuned is not None]


def _spread(values: Sequence[float]) -> float | None:
    """Return the population standard deviation over clients, None without finite values."""
    return pstdev(values) if values and all(map(math.isfinite, values)) else None


def scores_of(evaluation: Evaluation) -> dict[str, float]:
    """Return all scores that one client has, by name."""
    accuracy = {} if evaluation.accuracy is None else {"accuracy": evaluation.accuracy}
    return {**accuracy, "loss": evaluation.loss, **evaluation.scores}


def metrics_of(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, float | None]]:
    """Return the figures of each score over the clients: how many `clients` have it, and `FIGURES`.

    ``weighted`` is the mean weighted by test samples, ``worst`` the worst client's, ``worst_tenth`` the mean of the
    worst tenth of the clients (rounded up, so at least one), the quantiles are interpolated. All are None where one
    client's is not finite.
    """
    found: dict[str, list[tuple[float, int]]] = {}
    for evaluation in evaluations:
        for name, value in scores_of(evaluation).items():
            found.setdefault(name, []).append((value, evaluation.num_examples))
    return {name: _figures_of(found[name], better) for name, better in HIGHER_IS_BETTER.items() if name in found}


def _figures_of(clients: Sequence[tuple[float, int]], higher_is_better: bool) -> dict[str, float | None]:
    values = np.array([value for value, _ in clients], dtype=np.float64)
    if not np.isfinite(values).all():
        return {"clients": len(values), **dict.fromkeys(FIGURES)}
    from_worst = np.sort(values) if higher_is_better else np.sort(values)[::-1]
    quantiles = np.quantile(values, list(QUANTILES.values()))
    figures = (
        values.mean(),
        values.std(),
        np.average(values, weights=[count for _, count in clients]),
        from_worst[0],
        from_worst[: math.ceil(len(values) / 10)].mean(),
        *quantiles,
    )
    return {"clients": len(values), **dict(zip(FIGURES, map(float, figures), strict=True))}


Cell = int | float | None

Part = Literal["test", "validation", "tuned_test", "tuned_validation"]
"""A test of a client: of its model and of a fine-tuned copy, on both parts of its data."""
_COLUMNS = {(part, name): f"{part}_{name}" for part in get_args(Part) for name in ("examples", *HIGHER_IS_BETTER)}


def column_of(part: Part, name: str) -> str:
    """Return the column of a score, or of the number of ``examples``, in tables of clients."""
    return _COLUMNS[part, name]


TEST_CELLS = tuple(column_of("test", name) for name in ("examples", "loss", "accuracy"))
"""The columns that every run has."""


def tests_of(evaluation: Evaluation) -> dict[Part, Evaluation]:
    """Return the tests that a client has made."""
    tuned = evaluation.tuned
    tests: dict[Part, Evaluation | None] = {
        "test": evaluation,
        "validation": evaluation.validation,
        "tuned_test": tuned,
        "tuned_validation": None if tuned is None else tuned.validation,
    }
    return {part: test for part, test in tests.items() if test is not None}


def test_cells(evaluation: Evaluation) -> dict[str, Cell]:
    """Return the cells by column: of the test and, where the run has them, of validation data and fine-tuned copies.

    Further scores follow, of the plain test alone. A fine-tuned copy is tested on the same samples, whose number
    stands once.
    """
    # Flower comes with it, which help need not load.
    from florets.task.wire.kinds import VALIDATED

    tests, scores = tests_of(evaluation), evaluation.scores
    cells = _cells(tests, "test", "validation")
    # In one order, whatever a client's test set defines.
    prefixes: dict[Part, str] = {"test": "", "validation": VALIDATED}
    cells |= {
        column_of(part, name): scores[prefix + name]
        for part, prefix in prefixes.items()
        for name in HIGHER_IS_BETTER
        if prefix + name in scores
    }
    return cells | _cells(tests, "tuned_test", "tuned_validation")


def _cells(tests: Mapping[Part, Evaluation], *parts: Part) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for part in parts:
        if (test := tests.get(part)) is not None:
            if part in ("test", "validation"):
                cells[column_of(part, "examples")] = test.num_examples
            cells[column_of(part, "loss")], cells[column_of(part, "accuracy")] = test.loss, test.accuracy
    return cells
