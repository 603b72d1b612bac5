"""Published values of an item: what a paper gives, in which of its tables, and how ours compares."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from florets.papers.measures import Measure
from florets.reports.statistics import Spread

SIDES = ("above", "below")
"""Sides of a published value on which ours must be for a reason to hold."""

SMALL = "small scale"
UNDECIDED = "seeds differ too much to tell (the paper's value is within the 95 % interval of our mean)"
"""Reasons that no item gives: of runs that were cut short, and of the spread of ours."""


class Reason(NamedTuple):
    """A possible reason, and on which side of the published value ours must be for it; empty: on either."""

    text: str
    side: str = ""

    def names(self, key: str, value: str) -> bool:
        """Return whether it names a key with this value."""
        named = re.findall(rf"(?<![\w.]){re.escape(key)}=([^\s,;)]+)", self.text)
        return any(text.rstrip(".:") == value or _as_float(text.rstrip(".:")) == _as_float(value) for text in named)

    def fits(self, difference: float | None) -> bool:
        """Return whether it can be the reason for a difference, ours less the published value; None: not reached."""
        if not self.side:
            return True
        return difference is not None and (difference > 0) == (self.side == "above")


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


NO_VALUE = "no value"
"""Stands where runs came to their end without one, as those that diverged."""

NEVER = "never"
"""Stands where a paper has a dash: the value was never reached."""

OFF = "off"
"""Kind of the verdicts that need a reason."""


WIDE = "the published spread decides nothing"
"""Kind of the verdicts on values whose published spread is over `_MOST_SPREAD` points."""
_MOST_SPREAD = 5.0


@dataclass(frozen=True)
class Verdict:
    """How ours compares with a published value.

    `kind`: what verdicts of many places are counted by: ``off``, ``within 1 point``, ``not run``. `reached`,
    `finished`: where not all seeds have a value, or are finished: how many do, or are.
    """

    kind: str
    amount: str = ""
    reached: str = ""
    finished: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The verdict as the table has it."""
        return " ".join(filter(None, [self.kind, self.amount, self.reached, self.finished])) + (
            f": {'; '.join(self.reasons)}" if self.reasons else ""
        )


@dataclass(frozen=True)
class Reference:
    """A published value of one measure in one place of the table.

    Attributes
    ----------
    value
        As the table shows the measure (accuracy in %); None: never reached.
    spread
        Standard deviation over the paper's seeds, None where it gives none.
    rounding
        Half a unit of the last decimal that is printed; 0 where the value was not given as text.
    printed
        As the paper prints it; empty where it was not given as text.
    source
        Table or figure that it stands in, where the item has several.
    reasons
        Those that are given where ours is off.
    data
        Data set that it is of (`task.data`): it is compared with runs of no other. Empty: of whatever the item runs.
    """

    row: str
    column: str
    measure: str
    value: float | None
    spread: float | None = None
    rounding: float = 0.0
    printed: str = ""
    source: str = ""
    reasons: tuple[Reason, ...] = ()
    data: str = ""

    def beside(self, given: Mapping[str, str]) -> "Reference":
        """Return it as it applies to runs with these keys: reasons that name one of them with its value are gone.

        Where the released code's rate is given, that the paper's text has another is no reason any more.
        """
        kept = (reason for reason in self.reasons if not any(reason.names(*pair) for pair in given.items()))
        return replace(self, reasons=tuple(kept))

    def text(self, measure: Measure) -> str:
        """Return value and spread as the paper prints them."""
        return NEVER if self.value is None else self.printed or measure.number(self.value)

    def verdict(self, spread: Spread, measure: Measure) -> Verdict:
        """Return how ours, of the finished seeds that have a value, compares with the published value."""
        ours = spread.mean if spread.number else None
        kind, amount = self._compared(ours, spread.number, measure)
        if kind != OFF:
            return Verdict(kind, amount)
        difference = None if ours is None or self.value is None else ours - self.value
        reasons = [reason.text for reason in self.reasons if reason.fits(difference)]
        # More seeds would not make a run that was cut short comparable.
        is_within = self.value is not None and spread.low - self.rounding <= self.value <= spread.high + self.rounding
        if is_within and SMALL not in reasons:
            reasons.insert(0, UNDECIDED)
        return Verdict(kind, amount, reasons=tuple(reasons))

    def _compared(self, ours: float | None, reached: int, measure: Measure) -> tuple[str, str]:
        if self.value is None:
            # A run that was cut short says nothing of the paper's last rounds.
            agrees = "small scale" if any(reason.text == SMALL for reason in self.reasons) else "as in the paper"
            return (f"never, {agrees}", "") if ours is None else (OFF, f"reached by {reached}")
        if ours is None:
            return OFF, "never reached" if measure.may_be_never else NO_VALUE
        difference = ours - self.value
        # A value on the edge must not fail by the last bit of a float.
        slack = self.rounding + 1e-9
        within = self.spread is not None and abs(difference) <= self.spread + slack
        is_wide = measure.unit == "point" and (self.spread or 0.0) > _MOST_SPREAD
        if within and not is_wide:
            return "within the paper's spread", ""
        if measure.near and abs(difference) <= measure.near + 1e-9:
            return f"within {measure.near:g} {measure.unit}".strip(), ""
        if self.spread is None and abs(difference) <= slack:
            return "equal", ""
        shown = measure.number(difference, "+")
        if measure.near and abs(float(shown)) <= measure.near:
            # Rounded it would look near enough.
            shown = f"{difference:+.{len(shown.partition('.')[2]) + 1}f}"
        return (WIDE, f"({shown})") if within else (OFF, f"by {shown}")
