"""Names of a table's columns: how two sets of them differ, in words for a log."""

from collections.abc import Collection, Sequence

_MOST_NAMED = 5


def column_difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Return what one set of names lacks of another and has beside it; nothing where they are equal in any order."""
    here, there = set(found), set(wanted)
    lacking = [name for name in wanted if name not in here]
    surplus = [name for name in found if name not in there]
    parts = [f"lacks {listed(lacking)}" if lacking else "", f"has {listed(surplus)} beside them" if surplus else ""]
    return " and ".join(part for part in parts if part)


def listed(names: Collection[str]) -> str:
    """Return names in quotes, of many the first ones and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
