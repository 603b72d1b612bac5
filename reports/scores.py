"""The clients' test results together: mean and spread, the worst of them, quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, pstdev
from typing import Any, Literal, TypedDict, cast

import numpy as np

from florets.task.tested import Evaluation

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


class Means(TypedDict):
    """Unweighted mean and spread (population) over clients; None where no client has it, or one has diverged.

    ``tuned_`` are those of the fine-tuned copies.
    """

    accuracy: float | None
    accuracy_std: float | None
    loss: float | None
    loss_std: float | None
    tuned_accuracy: float | None
    tuned_accuracy_std: float | None
    tuned_loss: float | None
    tuned_loss_std: float | None


def means(evaluations: Iterable[Evaluation]) -> Means:
    """Return the mean and the spread of accuracy and loss."""
    values: dict[str, list[float]] = {name: [] for name in ("accuracy", "loss", "tuned_accuracy", "tuned_loss")}
    for evaluation in evaluations:
        for prefix, test in (("", evaluation), ("tuned_", evaluation.tuned)):
            if test is not None:
                values[f"{prefix}loss"].append(test.loss)
                if test.accuracy is not None:
                    values[f"{prefix}accuracy"].append(test.accuracy)
    found: Any = {}
    for name, known in values.items():
        is_known = bool(known) and all(map(math.isfinite, known))
        found[name], found[f"{name}_std"] = (fmean(known), pstdev(known)) if is_known else (None, None)
    return cast(Means, found)


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
    found: dict[str, tuple[list[float], list[int]]] = {}
    for evaluation in evaluations:
        for name, value in scores_of(evaluation).items():
            values, counts = found.setdefault(name, ([], []))
            values.append(value)
            counts.append(evaluation.num_examples)
    metrics: dict[str, dict[str, float | None]] = {}
    for name, higher_is_better in HIGHER_IS_BETTER.items():
        if name not in found:
            continue
        values, counts = found[name]
        metrics[name] = {"clients": len(values), **dict.fromkeys(FIGURES)}
        if all(map(math.isfinite, values)):
            array = np.array(values, dtype=np.float64)
            from_worst = np.sort(array) if higher_is_better else np.sort(array)[::-1]
            figures = (
                array.mean(),
                array.std(),
                np.average(array, weights=counts),
                from_worst[0],
                from_worst[: math.ceil(len(values) / 10)].mean(),
                *np.quantile(array, list(QUANTILES.values())),
            )
            metrics[name] |= zip(FIGURES, map(float, figures), strict=True)
    return metrics


Cell = int | float | None

Part = Literal["test", "validation", "tuned_test", "tuned_validation"]
"""A test of a client: of its model and of a fine-tuned copy, on both parts of its data."""

TEST_CELLS = ("test_examples", "test_loss", "test_accuracy")
"""The columns that every run has."""


def tests_of(evaluation: Evaluation) -> dict[Part, Evaluation]:
    """Return the tests that a client has made."""
    tests: dict[Part, Evaluation | None] = {"test": evaluation, "validation": evaluation.validation}
    if evaluation.tuned is not None:
        tests |= {"tuned_test": evaluation.tuned, "tuned_validation": evaluation.tuned.validation}
    return {part: test for part, test in tests.items() if test is not None}


def test_cells(evaluation: Evaluation) -> dict[str, Cell]:
    """Return the cells by column: of the test and, where the run has them, of validation data and fine-tuned copies.

    Further scores follow, of the plain test alone. A fine-tuned copy is tested on the same samples, whose number
    stands once.
    """
    cells: dict[str, Cell] = {}
    for part, test in tests_of(evaluation).items():
        if part in ("test", "validation"):
            cells[f"{part}_examples"] = test.num_examples
        cells |= {f"{part}_loss": test.loss, f"{part}_accuracy": test.accuracy}
    # In one order, whatever a client's test set defines; those of validation data begin with `kinds.VALIDATED`.
    for name in HIGHER_IS_BETTER if evaluation.scores else ():
        for score, column in ((name, f"test_{name}"), (f"validation_{name}", f"validation_{name}")):
            if score in evaluation.scores:
                cells[column] = evaluation.scores[score]
    return cells
