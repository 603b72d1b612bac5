"""Names of columns and classes: which one set lacks of another, which name was meant, and when two are one."""

import difflib
import re
from collections.abc import Collection, Sequence

_MOST_NAMED = 5
_MOST_COMPARED = 200
"""Names that are looked through for a near one: comparing costs milliseconds a pair."""


def missing_columns(wanted: Sequence[str], own: Sequence[str]) -> str:
    """Return which of the wanted names a table lacks, each with the nearest of its own; nothing where it has all."""
    has, asked = set(own), set(wanted)
    lacking = [name for name in wanted if name not in has]
    if not lacking:
        return ""
    spare = [name for name in own if name not in asked][:_MOST_COMPARED]
    near = []
    for name in lacking[:_MOST_NAMED]:
        found = difflib.get_close_matches(name, spare, n=1, cutoff=0.3)
        near.append(f"{name!r} (it has {found[0]!r})" if found else repr(name))
    more = f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    return f"lacks {', '.join(near)}{more}"


def listed(names: Collection[str]) -> str:
    """Return names in quotes, of many the first ones and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def class_name(text: object) -> str:
    """Return the name of a class as all sites write it: 1, 1.0 and 1.00 are one class."""
    name = str(text).strip()
    if re.fullmatch(r"[+-]?\d+\.0*", name):
        name = name.partition(".")[0]
    return name
