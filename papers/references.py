"""Published values of an item: what a paper gives, and how ours compares."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from florets.papers.measures import Measure
from florets.reports.statistics import Spread

NEVER = "never"
"""Stands where a paper has a dash, or our runs never reached a value."""
NO_VALUE = "no value"
"""Stands where runs came to their end without one, as those that diverged."""
OFF = "off"
"""The verdict that needs a reason."""
UNDECIDED = "seeds differ too much to tell (the paper's value is within the 95 % interval of our mean)"

_SIDES = ("above: ", "below: ")
"""Prefixes of reasons that hold only where ours is on that side of the published value."""

_PRINTED = re.compile(r"-?\d+(\.\d+)?(\s*±\s*\d+(\.\d+)?)?")


class Verdict(NamedTuple):
    """How ours compares with a published value, and possible reasons where it is off."""

    kind: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A published value of one measure in one place of the table, as printed there: a number with a spread, or never.

    `source`: table or figure that it stands in; `reasons`: given where ours is off, on the side that they begin
    with; `data`: the `task.data` that it is of, for it is compared with runs of no other; empty: of whatever the item
    runs.
    """

    row: str
    column: str
    measure: str
    printed: str
    source: str = ""
    reasons: tuple[str, ...] = ()
    data: str = ""
    is_comparable: bool = True
    """False of runs that are cut short."""

    def __post_init__(self) -> None:
        if self.printed != NEVER and not _PRINTED.fullmatch(self.printed):
            raise ValueError(f"{self.printed}: must be a number, 'mean ± spread' or {NEVER}.")

    @property
    def value(self) -> float | None:
        """The mean; None: never reached."""
        return None if self.printed == NEVER else float(self.printed.partition("±")[0])

    @property
    def spread(self) -> float | None:
        """Standard deviation over the paper's seeds, None where it gives none."""
        spread = self.printed.partition("±")[2]
        return float(spread) if spread else None

    @property
    def rounding(self) -> float:
        """Half a unit of the last decimal that is printed."""
        decimals = self.printed.partition("±")[0].strip().partition(".")[2]
        return 0.5 * 10.0 ** -len(decimals)

    def verdict(self, spread: Spread, measure: Measure) -> Verdict:
        """Return how ours, of the finished seeds that have a value, compares with the published value."""
        if self.value is None:
            return Verdict(OFF, self._reasons()) if spread.number else Verdict("never, as in the paper")
        if not spread.number:
            return Verdict(OFF, self._reasons())
        difference = abs(spread.mean - self.value)
        # A value on the edge must not fail by the last bit of a float.
        slack = self.rounding + 1e-9
        if self.spread is not None and difference <= self.spread + slack:
            return Verdict("within the paper's spread")
        if measure.near and difference <= measure.near + 1e-9:
            return Verdict(f"within {measure.near:g} {measure.unit}".strip())
        if self.spread is None and difference <= slack:
            return Verdict("equal")
        side = "above: " if spread.mean > self.value else "below: "
        may_be_chance = spread.low - self.rounding <= self.value <= spread.high + self.rounding
        return Verdict(OFF, ((UNDECIDED,) if may_be_chance else ()) + self._reasons(side))

    def _reasons(self, side: str = "") -> tuple[str, ...]:
        """Return the reasons that can hold on this side of the published value; empty: one was never reached."""
        others = tuple(one for one in _SIDES if one != side)
        return tuple(text.removeprefix(side) for text in self.reasons if not text.startswith(others))
