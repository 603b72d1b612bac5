"""Reasons that an item gives for values that are off a paper's."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

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
        return any(text.rstrip(".:") == value or _number(text.rstrip(".:")) == _number(value) for text in named)

    def fits(self, difference: float | None) -> bool:
        """Return whether it can be the reason for a difference, ours less the published value; None: not reached."""
        if not self.side:
            return True
        return difference is not None and (difference > 0) == (self.side == "above")


def _number(text: str) -> float:
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
