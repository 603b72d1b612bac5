"""Pooling of the sites' figures: the input of one column, the scale of a target."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median, median_low

from florets.task.data.tables.description import MOST_CATEGORIES, ColumnSummary, TargetSummary
from florets.task.data.tables.preprocessing import CategoricalInput, NumericInput
from florets.task.data.tables.tails import Pooled, clipped, is_heavy, kurtosis

_FAR = 1000.0
"""Multiple of the median site's figures or records beyond which those of a site do not count."""
_FEWEST = 3
"""Sites from which on one can be out of line."""

Summary = ColumnSummary | TargetSummary


def outlying(sites: Mapping[str, Summary]) -> set[str]:
    """Return the sites whose mean or spread of a column is too far from the median site's to be pooled."""
    known = {key: one for key, one in sites.items() if one.known and math.isfinite(one.mean)}
    if len(known) < _FEWEST:
        return set()
    spreads = {key: math.sqrt(one.m2 / one.known) for key, one in known.items()}
    # A constant's spread is rounding.
    spreads = {key: spread if spread > 1e-9 * abs(known[key].mean) else 0.0 for key, spread in spreads.items()}
    sizes = {key: math.hypot(one.mean, spreads[key]) for key, one in known.items()}
    most = [_FAR * median(of.values()) or math.inf for of in (spreads, sizes)]
    return {key for key in known if spreads[key] > most[0] or sizes[key] > most[1]}


def pooled_figures(sites: Mapping[str, Summary]) -> tuple[int, float, float]:
    """Return count, mean and sum of squared deviations of a column at all sites that sent figures and are in line.

    A site that claims very many records counts as 1000 times the median one's.
    """
    out = outlying(sites)
    known = [
        one
        for key, one in sites.items()
        if one.known and math.isfinite(one.mean) and math.isfinite(one.m2) and key not in out
    ]
    counts = [one.known for one in known]
    most = int(_FAR) * median_low(counts) if len(counts) >= _FEWEST else math.inf
    shares = [min(1.0, most / count) for count in counts]
    return _pooled(
        [(round(share * one.known), one.mean, share * one.m2) for share, one in zip(shares, known, strict=True)]
    )


def _pooled(parts: Sequence[tuple[int, float, float]]) -> tuple[int, float, float]:
    """Return count, mean and sum of squared deviations of all parts together.

    Source: Chan, Golub and LeVeque 1983, for any number of parts.
    """
    count = sum(n for n, _, _ in parts)
    if not count:
        return 0, 0.0, 0.0
    mean = math.fsum(n * m for n, m, _ in parts) / count
    return count, mean, math.fsum(m2 + n * (m - mean) ** 2 for n, m, m2 in parts)


def spread(count: int, mean: float, m2: float) -> float:
    """Return the standard deviation; of a constant 1, so that it is only centred."""
    std = math.sqrt(m2 / count) if count else 0.0
    return std if std > 1e-9 * abs(mean) else 1.0


def numeric_input(name: str, sites: Mapping[str, ColumnSummary], notes: list[str]) -> list[NumericInput]:
    """Return the input of a numeric column from its summaries; none, with a note, where it is constant or rare."""
    count, mean, m2 = pooled_figures(sites)
    missing = sum(one.missing for one in sites.values())
    if not count:
        notes.append(f"{name!r} is not used: no site has enough values of it")
        return []
    if math.sqrt(m2 / count) <= 1e-9 * abs(mean) and not missing:
        notes.append(f"{name!r} is not used: it has one value in all records")
        return []
    plain = NumericInput(name, mean, spread(count, mean, m2), missing > 0)
    known, out = {key: one for key, one in sites.items() if one.known and math.isfinite(one.mean)}, outlying(sites)
    # A site that is out of line has the heaviest tail.
    curved = kurtosis(list(known.values()))
    known = {key: one for key, one in known.items() if key not in out}
    of_all = Pooled(list(known.values()))
    if not of_all.is_known or not is_heavy(curved):
        return [plain]
    low, high = of_all.bounds()
    count, mean, m2 = pooled_figures(clipped(known, low, high))
    if low >= high or m2 <= 0:
        return [plain]
    return [replace(plain, mean=mean, std=spread(count, mean, m2), low=low, high=high)]


def categorical_input(name: str, sites: Sequence[ColumnSummary], notes: list[str]) -> list[CategoricalInput]:
    """Return the input of a column of words from its summaries; none, with a note, where it is constant or rare."""
    counts: Counter[str] = Counter()
    for one in sites:
        counts.update(one.categories)
    if not counts:
        lacking = "a frequent word" if any(one.known for one in sites) else "a value"
        notes.append(f"{name!r} is not used: no site has {lacking} of it")
        return []
    kept = dict(counts.most_common(MOST_CATEGORIES))
    other = sum(one.other for one in sites) + counts.total() - sum(kept.values())
    missing = sum(one.missing for one in sites)
    if len(kept) == 1 and not other and not missing:
        notes.append(f"{name!r} is not used: it has one value in all records")
        return []
    mode = min(kept, key=lambda word: (-kept[word], word))
    # What a small site does not name may be what others do: of no more words than are kept none need be another one.
    has_other = other > 0 and (len(kept) == 1 or any(one.distinct > len(kept) for one in sites))
    return [CategoricalInput(name, tuple(sorted(kept)), has_other, mode, missing > 0)]
