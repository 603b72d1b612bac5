"""The skill of a run's models over all test records, and how methods differ in it, by record and over data sets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.reports.pooled import TestStatistics, constant, pooled, total_squares, with_sums
from florets.reports.scores import Part
from florets.studies.advise.compare import QUANTILE, Difference
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


ROPE = 0.5
"""Points of skill within which a difference is of no practical use."""
_DRAWS = 20_000

Skills = Mapping[int, Sequence[float]]
"""By seed, a skill over all test records and in each resample of them, as `skill_of` returns it."""


def difference(first: Skills, second: Skills) -> Difference | None:
    """Return the difference of two methods on the same test records of equal seeds; None where there are none.

    Its variance is that over resamples of the records, and what seeds differ by beyond that.
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    gaps = np.array([np.subtract(first[seed], second[seed]) for seed in seeds])
    means, resampled = gaps[:, 0], gaps[:, 1:]
    if resampled.shape[1] < 2:
        return Difference(float(means.mean()), math.inf)
    own = resampled.var(axis=1, ddof=1)
    beyond = max(0.0, float(means.var(ddof=1) - own.mean())) if len(seeds) > 1 else 0.0
    error = math.sqrt(float(own.mean()) / len(seeds) + beyond / len(seeds))
    return Difference(float(means.mean()), QUANTILE * error)


@dataclass(frozen=True)
class Odds:
    """Probability that on a further data set the first of two methods is better, practically equal, or worse."""

    better: float
    same: float
    worse: float


def signed_rank(differences: Sequence[float]) -> Odds:
    """Return the odds of the Bayesian signed-rank test, given the mean difference on each data set.

    Source: Benavoli, Corani, Demsar and Zaffalon, "Time for a change: a tutorial for comparing multiple classifiers
    through Bayesian analysis" (JMLR 2017), Sec. 4.2: weights of the differences are Dirichlet(1), those of a
    pseudo-observation at 0 are Dirichlet(0.5), and Walsh averages are held to the region of practical equivalence.
    The odds are the draws in which each of the three has the most weight.
    """
    values: NDArray[np.float64] = np.array([0.0, *differences])
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([0.5, *[1.0] * len(differences)], size=_DRAWS)
    sums = values[:, np.newaxis] + values
    mass = [
        np.einsum("di,ij,dj->d", weights, part.astype(np.float64), weights, optimize=True)
        for part in (sums > 2 * ROPE, np.abs(sums) <= 2 * ROPE, sums < -2 * ROPE)
    ]
    counts = np.bincount(np.argmax(mass, axis=0), minlength=3) / _DRAWS
    return Odds(*map(float, counts))


@dataclass(frozen=True)
class Pair:
    """How a method compares with another: on each data set that both have, and over these."""

    differences: Mapping[str, Difference]
    odds: Odds

    @property
    def signs(self) -> tuple[int, int, int]:
        """Data sets on which it is ahead by more than chance, behind, and neither."""
        ahead = sum(one.is_gain for one in self.differences.values())
        behind = sum(one.is_loss for one in self.differences.values())
        return ahead, behind, len(self.differences) - ahead - behind


def pair(first: Mapping[str, Skills], second: Mapping[str, Skills], rows: Sequence[str]) -> Pair | None:
    """Return how a method compares with another over data sets, given by name; None without a common one."""
    found = {row: difference(first[row], second[row]) for row in rows if row in first and row in second}
    known = {row: one for row, one in found.items() if one is not None}
    return Pair(known, signed_rank([one.mean for one in known.values()])) if known else None
