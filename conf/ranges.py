"""Ranges that many keys have: each check returns one line per value outside."""

from collections.abc import Sequence

from conf.typed import show


def at_least(least: float, **values: float) -> list[str]:
    """Return a line for each named value below `least`."""
    return [f"{name}={show(value)}: must be at least {least}." for name, value in values.items() if value < least]


def above_zero(named: Sequence[tuple[str, float]]) -> list[str]:
    """Return a line for each named value that is not above 0."""
    return [f"{name}={show(value)}: must be greater than 0." for name, value in named if value <= 0]


def share(name: str, value: float) -> list[str]:
    """Return a line where the value is no share in (0, 1]."""
    if 0 < value <= 1:
        return []
    return [f"{name}={show(value)}: is a share, greater than 0 and at most 1; {name}=1.0 means all."]
