"""Ranges that many keys have: each check returns one line per value outside."""

import math
from collections.abc import Sequence

from florets.conf.typed import show


def at_least(least: float, **values: float) -> list[str]:
    """Return a line for each named value below `least`, or that is no finite number."""
    return [
        f"{name}={show(value)}: must be at least {least}{_finite(value)}."
        for name, value in values.items()
        if not least <= value < math.inf
    ]


def above_zero(named: Sequence[tuple[str, float]]) -> list[str]:
    """Return a line for each named value that is not above 0, or no finite number."""
    return [
        f"{name}={show(value)}: must be greater than 0{_finite(value)}."
        for name, value in named
        if not 0 < value < math.inf
    ]


def share(name: str, value: float) -> list[str]:
    """Return a line where the value is no share in (0, 1]."""
    if 0 < value <= 1:
        return []
    return [f"{name}={show(value)}: is a share, greater than 0 and at most 1; {name}=1.0 means all."]


def _finite(value: float) -> str:
    # Not math.isfinite: a whole number may be too large for it.
    return "" if -math.inf < value < math.inf else ", and a finite number"
