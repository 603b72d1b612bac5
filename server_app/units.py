"""Units: which sites have a column in another one than the others; one rule for `florets check` and advice."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

Span = tuple[float, float, float]
"""About the 10th percentile, the mean and the 90th percentile of a site's values: rounded, exact, rounded."""

_GAP = 2.5
"""Times the spread between the other sites by which sites must lie apart from them: what natural sites fill is no
gap."""
_LEAST = math.log(1.5)
"""Logarithm of the least factor that sets sites apart."""
_CLOSE = 0.15
"""Logarithm of how far a ratio may lie from a known factor: sites differ by themselves."""
_ALIKE = math.log(1.6)
"""Logarithm of how far the factors of mean and spread may differ, which quantiles of few records show coarsely."""


@dataclass(frozen=True)
class Conversion:
    """A known conversion: one unit's value times `factor`, plus `offset`, is another unit's; `text` names both."""

    factor: float
    text: str = ""
    offset: float = 0.0

    @property
    def reverse(self) -> "Conversion":
        """The conversion back."""
        text = re.sub(r"(\S+) to ([^\s,]+)", r"\2 to \1", self.text)
        return Conversion(1 / self.factor, text, -self.offset / self.factor)

    def misses(self, own: Span, usual: Span) -> tuple[float, float]:
        """Return how badly the others' usual mean and spread become a site's by it: 0 well, above 1 not at all."""
        middle, wide = own[1], own[2] - own[0]
        expected, factor = usual[1] * self.factor + self.offset, wide / (usual[2] - usual[0]) / self.factor
        if self.offset:
            # Near the zero of a scale ratios say nothing.
            return abs(middle - expected) / wide, abs(math.log(factor)) / math.log(1.3)
        if expected * middle <= 0:
            return math.inf, math.inf
        return abs(math.log(middle / expected)) / _CLOSE, abs(math.log(factor)) / _ALIKE


_KNOWN = (
    Conversion(1.8, "degrees Celsius to Fahrenheit", 32.0),
    Conversion(1.0, "degrees Celsius to Kelvin", 273.15),
    Conversion(2.2046, "kg to pounds"),
    Conversion(2.54, "inches to cm"),
    Conversion(3.281, "m to feet"),
    Conversion(4.184, "kcal to kJ"),
    Conversion(7.0, "weeks to days"),
    Conversion(7.5006, "kPa to mmHg"),
    Conversion(10.0),
    Conversion(12.0, "years to months"),
    Conversion(18.016, "glucose, mmol/l to mg/dl"),
    Conversion(24.0, "days to hours"),
    Conversion(25.4, "inches to mm"),
    Conversion(30.48, "feet to cm"),
    Conversion(38.67, "cholesterol, mmol/l to mg/dl"),
    Conversion(60.0, "minutes to seconds, or hours to minutes"),
    Conversion(88.42, "creatinine, mg/dl to umol/l"),
    Conversion(100.0),
    Conversion(365.25, "years to days"),
    Conversion(453.6, "pounds to g"),
    Conversion(1000.0),
    Conversion(3600.0, "hours to seconds"),
    Conversion(1e6),
)
"""Factors by which one unit of a column becomes another; below 2 none: sites differ so by nature."""


def conversion(own: Span, usual: Span) -> Conversion | None:
    """Return the known conversion by which the other sites' usual values become a site's; None: there is none."""
    both = [one for known in _KNOWN for one in (known, known.reverse)]
    # Together: the percentiles are rounded, so that by the spread alone Fahrenheit can pass for inches.
    fitting = [one for one in both if max(one.misses(own, usual)) <= 1]
    return min(fitting, key=lambda one: sum(one.misses(own, usual)), default=None)


def usual_span(spans: Iterable[Span]) -> Span:
    """Return the median percentiles of some sites."""
    low, middle, high = (median(place) for place in zip(*spans, strict=True))
    return low, middle, high


def outside(spans: Mapping[Key, Span]) -> dict[Key, Span]:
    """Return the sites that lie outside the other sites' values, and the usual span of these.

    Between them and the others lies a gap that is wider than the spread between the others; persons, schools or
    states that differ by nature leave none. Several sites may share another unit: the fewer ones are outside, of two
    halves the lower one.
    """
    # A constant has no unit that a ratio could show.
    spans = {key: span for key, span in spans.items() if span[0] < span[2]}
    if all(span[1] > 0 for span in spans.values()):
        apart = set(gaps({key: math.log(span[1]) for key, span in spans.items()}, _LEAST))
    else:
        # Around zero ratios say nothing.
        apart = set(gaps({key: span[1] for key, span in spans.items()}))
    if not apart:
        return {}
    usual = usual_span(span for key, span in spans.items() if key not in apart)
    return {key: usual for key in spans if key in apart and (spans[key][0] > usual[2] or spans[key][2] < usual[0])}


def gaps(values: Mapping[Key, float], least: float = 0.0) -> list[Key]:
    """Return whose values lie beyond gaps around most sites' values that are wider than the spread of these."""
    order = sorted(values, key=lambda key: values[key])
    cuts = [place for place in range(1, len(order)) if values[order[place]] - values[order[place - 1]] > least]
    ends, most = [0, *cuts, len(order)], order
    for first, last in combinations(ends, 2):
        if not 0 < len(order) <= 2 * (last - first) <= 2 * len(most):
            continue
        low, high = values[order[first]], values[order[last - 1]]
        below = low - values[order[first - 1]] if first else math.inf
        above = values[order[last]] - high if last < len(order) else math.inf
        if min(below, above) > _GAP * (high - low):
            most = order[first:last]
    return [key for key in order if key not in set(most)]
