"""Mean ranks of methods over data sets, with Friedman's and Nemenyi's tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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
