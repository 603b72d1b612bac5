"""Statistics over runs: means with their intervals, paired differences, tests corrected for their number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.95
FEWEST_PAIRS = 3
"""Fewest pairs for which a test is reported."""

FRACTION, PERCENT, ARI = (0.0, 1.0), (0.0, 100.0), (-0.5, 1.0)
"""Ranges of figures. No adjusted Rand index lies below -1/2.
Source: Chacón and Rastrojo, "Minimum adjusted Rand index for two clusterings of a given size" (2023)."""


@dataclass(frozen=True)
class Spread:
    """A mean over a number of runs; what the values are too few for is NaN."""

    number: int
    mean: float
    deviation: float
    """Sample standard deviation (n - 1)."""
    low: float
    """Lower end of the 95 % interval of the mean, by Student's t."""
    high: float

    @classmethod
    def of(cls, values: Sequence[float], bounds: tuple[float, float] | None = None) -> "Spread":
        """Return mean, deviation and interval of some values.

        With `bounds`, the range of the figure such as `PERCENT`, the interval is Student's for the logit of the
        mean's place in the range, with the standard error by the delta method, and transformed back: it stays inside
        the range and contains the mean. Without, as for losses and differences, it is Student's for the mean itself.
        """
        number = len(values)
        mean = fmean(values) if values else math.nan
        if number < 2:
            return cls(number, mean, math.nan, math.nan, math.nan)
        from scipy.special import expit, logit
        from scipy.stats import t  # half a second that only tables need

        deviation = stdev(values)
        half = float(t.ppf((1 + LEVEL) / 2, number - 1)) * deviation / math.sqrt(number)
        if bounds is None or not bounds[0] < mean < bounds[1]:
            # At an end of the range all values are equal.
            return cls(number, mean, deviation, mean - half, mean + half)
        least, width = bounds[0], bounds[1] - bounds[0]
        place = (mean - least) / width
        # The derivative of the logit is 1 / (p (1 - p)).
        reach = half / width / (place * (1 - place))
        low, high = (least + width * float(expit(logit(place) + sign * reach)) for sign in (-1, 1))
        return cls(number, mean, deviation, low, high)


def paired(ours: Mapping[int, float], others: Mapping[int, float]) -> list[float]:
    """Return ours - others for every seed that has both, in the order of the seeds."""
    return [ours[seed] - others[seed] for seed in sorted(ours.keys() & others.keys())]


def paired_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p value of the paired t test.

    None with fewer than `FEWEST_PAIRS` pairs, and where all differences are equal: without a spread the statistic is
    not defined.
    """
    if len(differences) < FEWEST_PAIRS:
        return None
    if stdev(differences) <= 1e-9 * max(map(abs, differences)):
        return None
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p values adjusted for their number by Holm's step-down procedure; None stays None and does not count.

    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted


def p_text(p: float | None) -> str:
    """Return a p value as tables show it; empty without one."""
    return "" if p is None else "p < 0.001" if p < 0.001 else f"p {p:.2g}"


LEGEND = (
    "Intervals are 95 %, by Student's t; those of accuracies and ARI are computed on the logit scale and stay inside "
    "their range. Differences are paired by seed; p is that of the paired t test, with Holm's correction for the "
    f"number of comparisons. Fewer than {FEWEST_PAIRS} pairs, or equal differences, have no test."
)


@dataclass(frozen=True)
class Compared:
    """One method: the mean of its values, and how it differs from another on equal seeds."""

    name: str
    spread: Spread
    against: str
    """The other method; empty for the one that others are compared with."""
    difference: Spread
    """Of the paired differences, its values minus the other's."""
    p: float | None = None
    """Of the paired t test; None without a test."""
    p_holm: float | None = None
    """With Holm's correction over all comparisons."""


def compare(
    values: Mapping[str, Mapping[int, float]],
    against: Mapping[str, str],
    bounds: tuple[float, float] | None = None,
) -> Sequence[Compared]:
    """Compare methods, given their values by seed, each with the one that `against` names for it, if any.

    `bounds` is the range of the figure, see `Spread.of`.
    """
    differences = {
        name: paired(known, values[against[name]]) if name in against else [] for name, known in values.items()
    }
    p_values = [paired_p(found) for found in differences.values()]
    adjusted = holm(p_values)
    return [
        Compared(
            name,
            Spread.of(list(known.values()), bounds),
            against.get(name, ""),
            Spread.of(differences[name]),
            p_values[place],
            adjusted[place],
        )
        for place, (name, known) in enumerate(values.items())
    ]
