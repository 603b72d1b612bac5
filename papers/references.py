"""Published values of an item: what a paper gives, in which of its tables, and how ours compares."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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


def reasons_of(row: Any, column: Any, block: Mapping[Any, Any], item: Mapping[Any, Any]) -> tuple[Reason, ...]:
    """Return the reasons of a place: its own, else its column's and its row's; the block's win over the item's."""

    def told(key: Any) -> tuple[Reason, ...] | None:
        found = block.get(key, item.get(key))
        return None if found is None else tuple(map(_reason, found if isinstance(found, list) else [found]))

    own = told(f"{row}.{column}")
    return (told(column) or ()) + (told(row) or ()) if own is None else own


def _reason(entry: Any) -> Reason:
    if not isinstance(entry, Mapping):
        return Reason(entry)
    ((side, text),) = entry.items()
    return Reason(text, side)


def wrong_reasons(why: Mapping[Any, Any]) -> str:
    """Return what is wrong with a mapping of places to their reasons, empty where nothing is."""
    for key, told in why.items():
        for reason in told if isinstance(told, list) else [told]:
            texts = list(reason.values()) if isinstance(reason, Mapping) else [reason]
            sided = not isinstance(reason, Mapping) or (len(reason) == 1 and set(reason) <= set(SIDES))
            if not sided or not all(isinstance(text, str) for text in texts):
                return (
                    f"why.{key}: {told}: must be text or a list of texts; of one that holds on one side of the "
                    "published value alone, {above: text} or {below: text}."
                )
    return ""


NO_VALUE = "no value"
"""Stands where runs came to their end without one, as those that diverged."""

NEVER = "never"
"""Stands where a paper has a dash: the value was never reached."""

OFF = "off"
"""Kind of the verdicts that need a reason."""

_FIGURE = re.compile(r"(?P<value>-?\d+(?:\.(?P<decimals>\d+))?)(?:\s*±\s*(?P<spread>\d+(?:\.\d+)?))?")
_KEYS = ("source", "data", "measure", "values", "why")

Fault = Callable[[str, str], None]
"""Takes a place in the file and what is wrong there."""


@dataclass(frozen=True)
class Verdict:
    """How ours compares with a published value.

    Attributes
    ----------
    kind
        What verdicts of many places are counted by: ``off``, ``within 1 point``, ``not run``.
    reached, finished
        Where not all seeds have a value, or are finished: how many do, or are.
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
        """Return it as it stands beside runs with these keys: reasons that name one of them with its value are gone.

        Where the released code's rate is given, that the paper's text has another is no reason any more.
        """
        kept = (reason for reason in self.reasons if not any(reason.names(*pair) for pair in given.items()))
        return replace(self, reasons=tuple(kept))

    def text(self, measure: Measure) -> str:
        """Return value and spread as the paper prints them."""
        if self.value is None:
            return NEVER
        return self.printed or measure.number(self.value)

    def verdict(self, spread: Spread, measure: Measure) -> Verdict:
        """Return how ours, of the finished seeds that have a value, compares with the published value."""
        ours = spread.mean if spread.number else None
        kind, amount = self._compared(ours, spread.number, measure)
        if kind != OFF:
            return Verdict(kind, amount)
        difference = None if ours is None or self.value is None else ours - self.value
        reasons = [reason.text for reason in self.reasons if reason.fits(difference)]
        # More seeds would not make a run that was cut short comparable.
        if SMALL not in reasons and self._is_within(spread.low, spread.high):
            reasons.insert(0, UNDECIDED)
        return Verdict(kind, amount, reasons=tuple(reasons))

    def _is_within(self, low: float, high: float) -> bool:
        return self.value is not None and low - self.rounding <= self.value <= high + self.rounding

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
        if self.spread is not None and abs(difference) <= self.spread + slack:
            return "within the paper's spread", ""
        if measure.near and abs(difference) <= measure.near + 1e-9:
            return f"within {measure.near:g} {measure.unit}".strip(), ""
        if self.spread is None and abs(difference) <= slack:
            return "equal", ""
        shown = measure.number(difference, "+")
        if measure.near and abs(float(shown)) <= measure.near:
            # Rounded it would look near enough.
            shown = f"{difference:+.{len(shown.partition('.')[2]) + 1}f}"
        return OFF, f"by {shown}"


def read_paper(blocks: Any, why: Mapping[Any, Any], fault: Fault) -> Iterator[Reference]:
    """Yield the values of an item's `paper`: blocks of one source and one measure each.

    Parameters
    ----------
    why
        Reasons of all blocks; those of a block win over them.
    fault
        Is told of every entry that cannot be read; the others are still yielded.
    """
    if wrong := wrong_reasons(why):
        fault("why", wrong.removeprefix("why."))
        return
    if not isinstance(blocks, list):
        fault("paper", "must be a list of blocks with the keys source, measure and values.")
        return
    seen: set[tuple[str, str, str, str]] = set()
    for number, block in enumerate(blocks):
        place = f"paper.{number}"
        wrong = _wrong_keys(block)
        if wrong:
            fault(place, wrong)
            continue
        reasons = block.get("why", {})
        used: set[Any] = set()
        data = str(block.get("data", ""))
        for row, columns in block["values"].items():
            for column, figure in columns.items():
                at = f"{place}.values.{row}.{column}"
                if (read := _read_figure(figure)) is None:
                    fault(at, f"{figure}: must be a number, 'mean ± spread' or {NEVER}.")
                    continue
                names = (str(row), str(column), str(block["measure"]))
                if (*names, data) in seen:
                    fault(at, f"{figure}: this measure has a value there already; keep one of the two.")
                seen.add((*names, data))
                used.update(key for key in (f"{row}.{column}", column, row) if key in reasons)
                texts = reasons_of(row, column, reasons, why)
                yield Reference(
                    *names, read.value, read.spread, read.rounding, read.printed, str(block["source"]), texts, data
                )
        for key in reasons:
            if key not in used:
                fault(f"{place}.why.{key}", "there is no such value; use a column, a row or <row>.<column>.")


def _wrong_keys(block: Any) -> str:
    if not isinstance(block, Mapping) or not {"source", "measure", "values"} <= set(block) <= set(_KEYS):
        found = f"it has {', '.join(map(str, block))}" if isinstance(block, Mapping) else f"it is {block}"
        return f"must have the keys source, measure and values, and may have data and why; {found}."
    if not all(isinstance(block.get(key, ""), str | int | float) for key in ("source", "data", "measure")):
        return "source, data and measure must be text."
    nested = isinstance(block["values"], Mapping) and all(isinstance(v, Mapping) for v in block["values"].values())
    if not nested or not isinstance(block.get("why", {}), Mapping):
        return "values must be a mapping of rows to columns to figures, and why one of columns or rows to reasons."
    return wrong_reasons(block.get("why", {}))


class _Figure(NamedTuple):
    """A figure as `Reference` has it."""

    value: float | None
    spread: float | None = None
    rounding: float = 0.0
    printed: str = ""


def _read_figure(figure: Any) -> _Figure | None:
    """Return a figure, read; None if it is none."""
    if figure == NEVER:
        return _Figure(None)
    text = " ".join(str(figure).split())
    match = None if isinstance(figure, bool) else _FIGURE.fullmatch(text)
    if match is None:
        return None
    if not isinstance(figure, str):
        # YAML has dropped the last zeros of what is no text: how it was rounded is not known.
        return _Figure(float(match["value"]))
    spread = None if match["spread"] is None else float(match["spread"])
    return _Figure(float(match["value"]), spread, 0.5 * 10.0 ** -len(match["decimals"] or ""), text)
