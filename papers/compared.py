"""The answer of a leaderboard: which method for which kind of data, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

from florets.papers.cells import Place, Progress
from florets.papers.item import Item, Line
from florets.papers.ranks import ROPE, Pair, Ranking, Skills, pair, ranked
from florets.reports.statistics import p_text
from florets.reports.tables import markdown_table

_SURE = 0.95
"""Probability from which on a method is said to be better than another."""
_TRUTH = "oracle"
"""The strategy that is given the true groups: no method that anybody can choose."""
_USUAL = "fedavg"
_MOST_NAMED = 6


@dataclass(frozen=True)
class Comparison:
    """The columns of an item, compared by the test records of each row of data.

    Parameters
    ----------
    found
        Progress of the cells of `places`, whose values have `records`; see `florets.papers.skill`.
    """

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
        return [row for row in self.item.rows if row.name in there]

    def ranking(self, rows: Sequence[Line]) -> Ranking:
        """Return how the columns rank that have a skill in all of these rows."""
        names = [row.name for row in rows]
        losses = {
            (row, column): -fmean(skill[0] for skill in own[row].values())
            for column, own in self.skills.items()
            for row in names
            if set(names) <= own.keys()
        }
        return ranked(losses, names, list(self.skills))

    def pair(self, first: str, second: str, rows: Sequence[Line]) -> Pair | None:
        """Return how two columns compare over rows."""
        return pair(self.skills[first], self.skills[second], [row.name for row in rows])

    def pairs(self) -> Iterator[Pair]:
        """Yield how each pair of columns compares, in the order of the item."""
        names = [column.name for column in self.item.columns if column.name in self.skills]
        for first, second in combinations(names, 2):
            if (found := self.pair(first, second, self.rows)) is not None:
                yield found

    @cached_property
    def _labels(self) -> Mapping[str, str]:
        return {column.name: column.label for column in self.item.columns}

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
        found = self.ranking(rows)
        if len(found.ranks) < 2:
            return ""
        best, *others = found.ranks
        pairs = {other: one for other in others if (one := self.pair(best, other, rows)) is not None}
        # Of few rows of data the records say more than the rows do.
        alike = [
            self._labels[other]
            for other, one in pairs.items()
            if one.odds.better < _SURE and one.signs[0] < len(one.differences)
        ]
        among = f"{len(rows)} federations" if len(rows) > 5 else ", ".join(row.label for row in rows)
        said = (
            f"**{kind[:1].upper()}{kind[1:]}** ({among}): **{self._labels[best]}**, mean rank {found.ranks[best]:.1f}"
        )
        said += f" of {len(found.ranks)}"
        if (usual := pairs.get(_USUAL)) is not None:
            ahead, behind, _ = usual.signs
            said += (
                f"; by record ahead of {self._labels[_USUAL]} in {ahead} of {len(usual.differences)}, behind in "
                f"{behind}, and better by over {ROPE:g} points with probability {usual.odds.better:.2f}"
            )
        if alike:
            named = ", ".join(alike[:_MOST_NAMED])
            more = f" and {len(alike) - _MOST_NAMED} more" if len(alike) > _MOST_NAMED else ""
            said += f". Not surely worse: {named}{more}"
        return f"{said}."

    def _against(self) -> str:
        """Return a table of the best column over all rows against each other one."""
        found = self.ranking(self.rows)
        if len(found.ranks) < 2:
            return ""
        best, *others = found.ranks
        lines = [[f"{self._labels[best]} against", "ahead", "behind", "neither", "better", "same", "worse"]]
        for other in others:
            if (one := self.pair(best, other, self.rows)) is not None:
                odds = (one.odds.better, one.odds.same, one.odds.worse)
                lines.append([self._labels[other], *map(str, one.signs), *(f"{value:.2f}" for value in odds)])
        return (
            "Federations in which it is ahead, behind or neither, by the 95 % interval over their test records; and "
            f"the probability that it is better by over {ROPE:g} points, the same, or worse in a further one "
            f"(Bayesian signed-rank test):\n\n{markdown_table(lines)}"
        )

    def _told_apart(self) -> str:
        """Return how many pairs each of the two tests tells apart."""
        found, pairs = self.ranking(self.rows), list(self.pairs())
        sure = sum(max(one.odds.better, one.odds.worse) >= _SURE for one in pairs)
        said = f"Of {len(pairs)} pairs the signed-rank test tells {sure} apart"
        if found.difference is None or found.p is None:
            return f"{said}."
        ranks = list(found.ranks.values())
        wide = sum(abs(a - b) >= found.difference for a, b in combinations(ranks, 2))
        return (
            f"{said}; Nemenyi's, by mean ranks that are {found.difference:.1f} apart, {wide} of "
            f"{len(ranks) * (len(ranks) - 1) // 2} (Friedman's {p_text(found.p)})."
        )
