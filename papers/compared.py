"""The answer of a leaderboard: which method for which kind of data, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

from florets.papers.cells import Place, Progress
from florets.papers.item import Item, Line
from florets.papers.skill import ROPE, Pair, Skills, pair
from florets.reports.console import listed
from florets.reports.tables import markdown_table

if TYPE_CHECKING:
    import pandas as pd

_SURE = 0.95
"""Probability from which on a method is said to be better than another."""
_TRUTH = "oracle"
"""The strategy that is given the true groups: no method that anybody can choose."""
_USUAL = "fedavg"
_MOST_NAMED = 6


@dataclass(frozen=True)
class Comparison:
    """The columns of an item, compared by the test records of each row of data (`records` of finished cells)."""

    item: Item
    places: Sequence[Place]
    found: Mapping[tuple[str, str], Mapping[int, Progress]]

    @cached_property
    def skills(self) -> dict[str, dict[str, Skills]]:
        """By column and row, the skills of finished cells by seed."""
        found: dict[str, dict[str, Skills]] = {}
        for place in self.places:
            cells = self.found.get(place.key, {})
            own = {seed: known for seed, one in cells.items() if (known := one.values.get("records"))}
            if own and place.column.overrides.get("strategy") != _TRUTH:
                found.setdefault(place.column.name, {})[place.row.name] = own
        return found

    @cached_property
    def rows(self) -> list[Line]:
        """The rows of data in which columns are compared."""
        there = {row for own in self.skills.values() for row in own}
        return [row for row in self.item.rows.values() if row.name in there]

    @cached_property
    def _means(self) -> pd.DataFrame:
        """Mean skill over seeds, of each row (rows) and column (columns)."""
        import pandas as pd

        means = {
            column: {row: fmean(one[0] for one in skills.values()) for row, skills in own.items()}
            for column, own in self.skills.items()
        }
        return pd.DataFrame(means, index=[row.name for row in self.rows])

    def mean_ranks(self) -> dict[str, float]:
        """Return the mean rank of each column over the rows that it has, best first."""
        return _mean_ranks(self._means)

    def _ranks_in(self, rows: Sequence[Line]) -> dict[str, float]:
        """Return the mean ranks over these rows of the columns that have a skill in all of them."""
        return _mean_ranks(self._means.loc[[row.name for row in rows]].dropna(axis="columns"))

    def pair(self, first: str, second: str, rows: Sequence[Line]) -> Pair | None:
        """Return how two columns compare over rows."""
        return pair(self.skills[first], self.skills[second], [row.name for row in rows])

    def _label(self, column: str) -> str:
        return self.item.columns[column].label

    def text(self) -> str:
        """Return the answer as Markdown: a line for each kind of data, one over all, and a table."""
        if len(self.skills) < 2:
            return ""
        kinds = dict.fromkeys(row.kind for row in self.rows if row.kind)
        lines = [self._answer(kind, [row for row in self.rows if row.kind == kind]) for kind in kinds]
        lines.append(self._answer("all of them", self.rows))
        parts = ["\n".join(f"- {line}" for line in lines if line), self._against(), self._told_apart()]
        return "\n\n".join(filter(None, parts))

    def _answer(self, kind: str, rows: Sequence[Line]) -> str:
        ranks = self._ranks_in(rows)
        if len(ranks) < 2:
            return ""
        best, *others = ranks
        pairs = {other: one for other in others if (one := self.pair(best, other, rows)) is not None}
        # Of few rows of data the records say more than the rows do.
        alike = [
            self._label(other)
            for other, one in pairs.items()
            if one.odds.better < _SURE and one.signs[0] < len(one.differences)
        ]
        among = f"{len(rows)} federations" if len(rows) > 5 else ", ".join(row.label for row in rows)
        said = f"**{kind[:1].upper()}{kind[1:]}** ({among}): **{self._label(best)}**, mean rank {ranks[best]:.1f}"
        said += f" of {len(ranks)}"
        if (usual := pairs.get(_USUAL)) is not None:
            ahead, behind, _ = usual.signs
            said += (
                f"; by record ahead of {self._label(_USUAL)} in {ahead} of {len(usual.differences)}, behind in "
                f"{behind}, and better by over {ROPE:g} points with probability {usual.odds.better:.2f}"
            )
        if alike:
            said += f". Not surely worse: {listed(alike, _MOST_NAMED)}"
        return f"{said}."

    def _against(self) -> str:
        """Return a table of the best column over all rows against each other one."""
        ranks = self._ranks_in(self.rows)
        if len(ranks) < 2:
            return ""
        best, *others = ranks
        lines = [[f"{self._label(best)} against", "ahead", "behind", "neither", "better", "same", "worse"]]
        for other in others:
            if (one := self.pair(best, other, self.rows)) is not None:
                odds = (one.odds.better, one.odds.same, one.odds.worse)
                lines.append([self._label(other), *map(str, one.signs), *(f"{value:.2f}" for value in odds)])
        return (
            "Federations in which it is ahead, behind or neither, by the 95 % interval over their test records; and "
            f"the probability that it is better by over {ROPE:g} points, the same, or worse in a further one "
            f"(Bayesian signed-rank test):\n\n{markdown_table(lines)}"
        )

    def _told_apart(self) -> str:
        names = [name for name in self.item.columns if name in self.skills]
        pairs = [one for a, b in combinations(names, 2) if (one := self.pair(a, b, self.rows)) is not None]
        sure = sum(max(one.odds.better, one.odds.worse) >= _SURE for one in pairs)
        return f"Of {len(pairs)} pairs the signed-rank test tells {sure} apart."


def _mean_ranks(means: pd.DataFrame) -> dict[str, float]:
    # To nine digits equal runs tie.
    ranks = means.round(9).rank(axis="columns", ascending=False).mean().sort_values(kind="stable")
    return {str(name): float(rank) for name, rank in ranks.items()}
