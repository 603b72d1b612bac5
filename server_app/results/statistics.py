"""Means with their spread and interval, and paired differences over equal seeds."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.95
FEWEST_RANKS = 6
"""Pairs from which on the signed-rank test can fall below 5 % at all."""


@dataclass(frozen=True)
class Spread:
    """A mean over runs.

    Attributes
    ----------
    number
        Values that there are.
    mean
        NaN where there is none.
    deviation
        Sample standard deviation (n - 1); NaN below two values.
    low, high
        Ends of the 95 % interval of the mean, by Student's t; NaN below two values.
    """

    number: int
    mean: float
    deviation: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return mean, spread and interval of some values."""
        number = len(values)
        mean = fmean(values) if values else math.nan
        if number < 2:
            return cls(number, mean, math.nan, math.nan, math.nan)
        from scipy.stats import t  # half a second that only tables need

        deviation = stdev(values)
        half = float(t.ppf((1 + LEVEL) / 2, number - 1)) * deviation / math.sqrt(number)
        return cls(number, mean, deviation, mean - half, mean + half)


def paired(ours: Mapping[int, float], others: Mapping[int, float]) -> list[float]:
    """Return ours - others for every seed that has both, in the order of the seeds."""
    return [ours[seed] - others[seed] for seed in sorted(ours.keys() & others.keys())]


def bootstrap(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of 2 to 5 differences by the percentile bootstrap, None for others.

    All samples with replacement are taken, so that nothing is drawn: 27 of 3 differences, 3,125 of 5. From
    `FEWEST_RANKS` on there is a test by ranks.
    """
    number = len(differences)
    if not 2 <= number < FEWEST_RANKS:
        return None
    means = sorted(fmean(sample) for sample in itertools.product(differences, repeat=number))
    outside = (1 - LEVEL) / 2 * len(means)
    # The means at which at least the outer 2.5 % of the samples are reached.
    first = max(math.ceil(outside - 1e-9), 1) - 1
    return means[first], means[-1 - first]


def evidence(differences: Sequence[float], form: Callable[[float], str]) -> str:
    """Return what speaks for a difference, in words: the test by ranks, or of few pairs the bootstrap's interval.

    Parameters
    ----------
    differences
        Paired, see `paired`.
    form
        Makes a text of a number.
    """
    p = signed_rank_p(differences)
    if p is not None:
        return f"p {p:.2g}"
    ends = bootstrap(differences)
    return "" if ends is None else f"bootstrap [{form(ends[0])}, {form(ends[1])}]"


def signed_rank_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of Wilcoxon's signed-rank test; None below `FEWEST_RANKS` pairs or where all are 0."""
    if len(differences) < FEWEST_RANKS or not any(differences):
        return None
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue)
