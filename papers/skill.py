"""The skill of a run's models over all test records, and the same of resamples of these records."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from florets.reports.pooled import TestStatistics, constant, pooled, total_squares, with_sums
from florets.reports.scores import Part
from florets.task.wire.kinds import DIVERGED

RESAMPLES = 50
"""Resamples of the test records that are kept: standard errors are known to a tenth."""
WORST = -100.0
"""Least skill, and that of models that diverged somewhere: a worse one would decide every mean."""


def skill_of(statistics: Mapping[str, TestStatistics], by_accuracy: bool = False, tuned: bool = False) -> list[float]:
    """Return the skill in % over all test records, and in each of the resamples; empty where the run has no sums.

    It is the accuracy with `by_accuracy`; else, of classes, the part of the constant answer's log loss that is
    explained, and of values the part of the variance. Clients with too few test records for sums do not count.
    `tuned`: of fine-tuned copies.
    Resample b of every method's test is of the same records, so that differences are paired by record.
    """
    part: Part = "tuned_test" if tuned else "test"
    there = [one for client in statistics.values() if (one := client.parts.get(part)) is not None]
    if any(one.scores.get("loss", 0.0) >= DIVERGED for one in there):
        return [WORST] * (1 + RESAMPLES)
    tests = list(with_sums(statistics, part).values())
    if not tests:
        return []
    weights = np.array([test.n for test in tests], dtype=np.float64)

    def mean(name: str, power: int = 1) -> NDArray[np.float64]:
        own = np.stack([test.replicates[name][:RESAMPLES].astype(np.float64) ** power for test in tests])
        of_all: NDArray[np.float64] = weights @ own / weights.sum()
        return of_all

    if "rmse" in tests[0].replicates:
        figure = pooled(tests, "r2")
        own = 1 - mean("rmse", 2) * weights.sum() / max(total_squares(tests), 1e-300)
    elif by_accuracy:
        figure, own = pooled(tests, "accuracy"), mean("accuracy")
    else:
        least = constant(statistics, "log_loss", part).pooled
        if not 0 < least < math.inf:
            return []
        figure, own = 1 - pooled(tests, "log_loss") / least, 1 - mean("log_loss") / least
    if not math.isfinite(figure):
        return []
    # A page's folder has as many digits.
    return [float(f"{max(100 * float(value), WORST):.6g}") for value in (figure, *own)]
