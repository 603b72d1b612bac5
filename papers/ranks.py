"""Comparison of methods over data sets: mean ranks, and pairs by record and by the Bayesian signed-rank test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from florets.reports.statistics import critical_difference, friedman_p

_FEWEST = 3
"""Methods, and data sets, below which there is no test."""


@dataclass(frozen=True)
class Ranking:
    """How columns rank over rows; 1 is the best.

    Attributes
    ----------
    rows
        Rows that count: those in which a column has a score.
    ranks
        Mean rank of each column by name, best first. Columns with a score in every row are ranked among each other;
        any other one among these, over the rows where it has a score.
    known
        Number of rows that each of them has a score in.
    p, difference
        Of Friedman's test over the columns with a score in every row, and how far mean ranks must be apart by
        Nemenyi's; None where there are too few.
    """

    rows: tuple[str, ...]
    ranks: Mapping[str, float]
    known: Mapping[str, int]
    p: float | None = None
    difference: float | None = None

    @property
    def complete(self) -> list[str]:
        """Columns with a score in every row, best first."""
        return [name for name in self.ranks if self.known[name] == len(self.rows)]

    @property
    def alike(self) -> list[tuple[str, str]]:
        """First and last column of each largest group in which no two differ by Nemenyi's test."""
        names, found = self.complete, list[tuple[int, int]]()
        if self.difference is None:
            return []
        for first, name in enumerate(names):
            within = [self.ranks[other] - self.ranks[name] < self.difference for other in names[first:]]
            last = first + sum(within) - 1
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return [(names[first], names[last]) for first, last in found]


def ranked(losses: Mapping[tuple[str, str], float], rows: Sequence[str], columns: Sequence[str]) -> Ranking:
    """Return the ranking of columns by their losses, each by row and column, where they have one."""
    rows = tuple(row for row in rows if any(row == key[0] for key in losses))
    columns = [column for column in columns if any(column == key[1] for key in losses)]
    whole = [name for name in columns if all((row, name) in losses for row in rows)]

    def rank(row: str, name: str) -> float:
        others = np.array([losses[row, other] for other in whole if other != name])
        own = losses[row, name]
        return 1.0 + float((others < own).sum()) + 0.5 * float((others == own).sum())

    known = {name: [rank(row, name) for row in rows if (row, name) in losses] for name in columns}
    means = {name: float(np.mean(ranks)) for name, ranks in known.items()}
    ranks = dict(sorted(means.items(), key=lambda pair: pair[1]))
    numbers = {name: len(known[name]) for name in ranks}
    if min(len(whole), len(rows)) < _FEWEST:
        return Ranking(rows, ranks, numbers)
    p = friedman_p([[known[name][line] for name in whole] for line in range(len(rows))])
    return Ranking(rows, ranks, numbers, p, critical_difference(len(whole), len(rows)))


ROPE = 0.5
"""Points of a score within which a difference is of no practical use."""
_QUANTILE, _DRAWS = 1.959964, 20_000

Skills = Mapping[int, Sequence[float]]
"""By seed, a score over all test records and in each resample of them, as `skill_of` returns it."""


@dataclass(frozen=True)
class Difference:
    """Mean difference of two columns in one row of data, and half of its 95 % interval; infinite where unknown."""

    mean: float
    half: float

    @property
    def sign(self) -> int:
        """1 or -1 where the interval leaves out 0, else 0."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.half else 0


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
    return Difference(float(means.mean()), _QUANTILE * error)


@dataclass(frozen=True)
class Odds:
    """Probability that in a further row of data the first of two columns is better, practically equal, or worse."""

    better: float
    same: float
    worse: float


def signed_rank(differences: Sequence[float]) -> Odds:
    """Return the odds of the Bayesian signed-rank test, given the mean difference in each row of data.

    Source: Benavoli, Corani, Demsar and Zaffalon, "Time for a change: a tutorial for comparing multiple classifiers
    through Bayesian analysis" (JMLR 2017), Sec. 4.2: weights of the differences are Dirichlet(1), those of a
    pseudo-observation at 0 are Dirichlet(0.5), and Walsh averages are held to the region of practical equivalence.
    The odds are the draws in which each of the three has the most weight.
    """
    values: npt.NDArray[np.float64] = np.array([0.0, *differences])
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
    """How a column compares with another: in each row of data that both have, and over these rows."""

    differences: Mapping[str, Difference]
    odds: Odds

    @property
    def signs(self) -> tuple[int, int, int]:
        """Rows in which it is ahead by more than chance, behind, and neither."""
        signs = [one.sign for one in self.differences.values()]
        return signs.count(1), signs.count(-1), signs.count(0)


def pair(first: Mapping[str, Skills], second: Mapping[str, Skills], rows: Sequence[str]) -> Pair | None:
    """Return how a column compares with another over rows of data, given by row; None without a common one."""
    found = {row: difference(first[row], second[row]) for row in rows if row in first and row in second}
    known = {row: one for row, one in found.items() if one is not None}
    return Pair(known, signed_rank([one.mean for one in known.values()])) if known else None
