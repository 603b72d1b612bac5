"""Pooling of the sites' descriptions: an input of one column, the classes or the scale of the target."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import (
    MOST_CATEGORIES,
    MOST_CLASSES,
    MOST_GUESSED,
    ColumnSummary,
    Description,
    TargetSummary,
)
from florets.task.data.tables.preprocessing import CategoricalInput, NumericInput, Scale


def _pooled(parts: Sequence[tuple[int, float, float]]) -> tuple[int, float, float]:
    """Return count, mean and sum of squared deviations of all parts together.

    Source: Chan, Golub and LeVeque 1983, for any number of parts.
    """
    count = sum(n for n, _, _ in parts)
    if not count:
        return 0, 0.0, 0.0
    mean = math.fsum(n * m for n, m, _ in parts) / count
    return count, mean, math.fsum(m2 + n * (m - mean) ** 2 for n, m, m2 in parts)


def _spread(count: int, mean: float, m2: float) -> float:
    """Return the standard deviation; of a constant 1, so that it is only centred."""
    std = math.sqrt(m2 / count) if count else 0.0
    return std if std > 1e-9 * abs(mean) else 1.0


def numeric_input(name: str, sites: Sequence[ColumnSummary], notes: list[str]) -> list[NumericInput]:
    """Return the input of a numeric column from its summaries; none, with a note, where it is constant or rare."""
    parts = [(one.known, one.mean, one.m2) for one in sites if one.known and math.isfinite(one.mean)]
    count, mean, m2 = _pooled(parts)
    missing = sum(one.missing for one in sites)
    if not count:
        notes.append(f"{name!r} is not used: no site has enough values of it")
        return []
    if math.sqrt(m2 / count) <= 1e-9 * abs(mean) and not missing:
        notes.append(f"{name!r} is not used: it has one value in all records")
        return []
    return [NumericInput(name, mean, _spread(count, mean, m2), missing > 0)]


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


def pooled_targets(
    declared: Declaration, sites: Mapping[str, TargetSummary], classes: Sequence[str] | None
) -> tuple[dict[str, tuple[str, ...]], float, float]:
    """Return the classes with their raw values, and mean and spread of the targets of a regression.

    Raises
    ------
    ValueError
        If the sites' targets are no common classes, or no values where the run says so.
    """
    if declared.classes:
        return {name: tuple(raws) for name, raws in declared.classes.items()}, 0.0, 1.0
    if classes is not None and not declared.regression:
        return {str(name): (str(name),) for name in classes}, 0.0, 1.0
    numeric = all(one.numeric for one in sites.values())
    names = sorted({name for one in sites.values() for name in one.classes}, key=natural_order)
    if declared.regression is None:
        most = max(len(names), *(one.distinct for one in sites.values()))
        is_regression = numeric and (most > MOST_GUESSED or not names or not all(one.whole for one in sites.values()))
    else:
        is_regression = declared.regression
    if is_regression:
        if not numeric:
            words = next(key for key, one in sites.items() if not one.numeric)
            raise ValueError(
                f"task.table.regression=true, but the target of {words} holds words; correct one of them."
            )
        parts = [(one.known, one.mean, one.m2) for one in sites.values() if math.isfinite(one.mean)]
        count, mean, m2 = _pooled(parts)
        return {}, mean, _spread(count, mean, m2)
    wordy = next((key for key, one in sites.items() if one.distinct > MOST_CLASSES), None)
    if wordy is not None:
        raise ValueError(
            f"the target of {wordy} has too many different values for classes: set task.table.regression=true, or "
            "name another target."
        )
    if len(names) < 2:
        raise ValueError("the target has one class at all sites: there is nothing to learn; name another target.")
    return {name: (name,) for name in names}, 0.0, 1.0


def natural_order(name: str) -> tuple[int, float, str]:
    """Order numbers by value, and words after them."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def site_scales(numeric: Sequence[NumericInput], sites: Mapping[str, Description]) -> dict[str, Scale]:
    """Return each site's own scale; where it has too few values of a column, the pooled one."""
    scales = {}
    for key, site in sites.items():
        own = {column.name: column for column in site.columns}
        pairs = [
            (own[one.name].mean, _spread(own[one.name].known, own[one.name].mean, own[one.name].m2))
            if own[one.name].known and math.isfinite(own[one.name].mean)
            else (one.mean, one.std)
            for one in numeric
        ]
        scales[key] = Scale(tuple(mean for mean, _ in pairs), tuple(std for _, std in pairs))
    return scales
