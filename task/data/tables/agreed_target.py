"""The target that sites agree on: its classes, or that it holds values."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_CLASSES, MOST_GUESSED, TargetSummary
from florets.task.data.tables.names import (
    listed,
)
from florets.task.data.tables.pooling import (
    pooled_figures,
    spread,
)

Classes = dict[str, tuple[str, ...]]


def pooled_targets(
    declared: Declaration,
    sites: Mapping[str, TargetSummary],
    classes: Sequence[str] | None,
    left_out: dict[str, str],
    notes: list[str],
) -> tuple[Classes, float, float]:
    """Return the classes with their raw values, and mean and spread of the targets of a regression.

    Parameters
    ----------
    declared
        What the run says of tables.
    sites
        Each site's target, by client key.
    classes
        Names of the classes as the run has them; None: they follow from the data.
    left_out, notes
        Get the sites whose target does not fit to the majority's, with the reason, and what was decided.
    """
    if declared.classes:
        return {name: tuple(raws) for name, raws in declared.classes.items()}, 0.0, 1.0
    if classes is not None and not declared.regression:
        return {str(name): (str(name),) for name in classes}, 0.0, 1.0
    numeric = {key: one for key, one in sites.items() if one.numeric}
    usual = _without_few_values(numeric) if declared.regression is None else numeric
    is_regression = declared.regression
    if is_regression is None:
        is_regression = len(numeric) * 2 > len(sites) and _are_values(usual)
    if is_regression:
        if not numeric:
            raise ValueError(
                "task.table.regression=true, but the target holds words at all sites; correct one of them."
            )
        why = "has words in the target, where the other sites have numbers; correct it, or name its missing mark"
        left_out.update({key: why for key in sites if key not in numeric})
        count, mean, m2 = pooled_figures(numeric)
        return {}, mean, spread(count, mean, m2)
    sites = _with_classes(declared, sites, numeric.keys() - usual.keys(), left_out)
    names = common_classes(
        {key: one.classes.keys() for key, one in sites.items()},
        left_out,
        notes,
        "give the cells of each class, task.table.classes",
        {key for key, one in sites.items() if one.rare},
    )
    if len(names) < 2:
        rare = any(one.rare for one in sites.values())
        raise ValueError(
            "the target has one class at all sites: there is nothing to learn; name another target"
            + (", or name its rare classes, task.table.classes." if rare else ".")
        )
    why = (
        "has classes that are too rare to be named, and no other site names them; name all, task.table.classes, or, "
        "if they mark missing values, the mark in missing"
    )
    left_out.update({key: why for key, one in sites.items() if one.rare and one.distinct > len(names)})
    return {name: (name,) for name in names}, 0.0, 1.0


def natural_order(name: str) -> tuple[int, float, str]:
    """Order numbers by value, and words after them."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)


def _class_names(sites: Mapping[str, TargetSummary]) -> list[str]:
    return sorted({name for one in sites.values() for name in one.classes}, key=natural_order)


def _is_valued(site: TargetSummary) -> bool:
    return site.numeric and (site.distinct > MOST_GUESSED or not site.whole)


def _are_values(sites: Mapping[str, TargetSummary]) -> bool:
    """Return whether the targets of these sites, which have numbers, are values and no classes."""
    names = _class_names(sites)
    return not names or len(names) > MOST_GUESSED or any(map(_is_valued, sites.values()))


def _without_few_values(sites: Mapping[str, TargetSummary]) -> dict[str, TargetSummary]:
    """Return the sites without the few that have values of a target of which all others have the same classes."""
    classed = {key: one for key, one in sites.items() if not _is_valued(one)}
    sets = {frozenset(one.classes) for one in classed.values() if one.classes}
    alike = len(classed) * 2 > len(sites) and len(sets) == 1 and len(next(iter(sets))) > 1
    return classed if alike else dict(sites)


def _with_classes(
    declared: Declaration, sites: Mapping[str, TargetSummary], valued: Set[str], left_out: dict[str, str]
) -> dict[str, TargetSummary]:
    """Return the sites whose target can be classes; `valued` have values and are few."""

    def fits(key: str) -> bool:
        one = sites[key]
        has_values = key in valued or (declared.regression is None and not one.classes and _is_valued(one))
        return one.distinct <= MOST_CLASSES and not has_values

    kept = {key: one for key, one in sites.items() if fits(key)}
    if len(kept) * 2 <= len(sites):
        wordy = next(key for key in sites if key not in kept)
        raise ValueError(
            f"the target of {wordy} has too many different values for classes: set task.table.regression=true, or "
            "name another target."
        )
    why = "has too many different values in the target, where the other sites have classes; correct it"
    left_out.update({key: why for key in sites if key not in kept})
    return kept


def common_classes(
    sites: Mapping[str, Set[str]],
    left_out: dict[str, str],
    notes: list[str],
    remedy: str,
    unnamed: Set[str] = frozenset(),
) -> list[str]:
    """Return the classes that hang together at most sites, directly or through further sites, in their order.

    Parameters
    ----------
    sites
        Names of the classes of each site, by client key; empty where a site says nothing of them.
    left_out, notes
        Get the sites that share none of these classes, and the classes of one site alone.
    remedy
        What makes classes with other names one.
    unnamed
        Sites that have records of classes too rare there to be named.
    """
    parts: list[set[str]] = []
    for names in sites.values():
        near = [part for part in parts if part & names]
        parts = [part for part in parts if part not in near]
        parts += [set(names).union(*near)] if names else []
    counts = [sum(bool(part & names) for names in sites.values()) for part in parts]
    common = set().union(*parts)
    if len(parts) > 1 and max(counts) * 2 > sum(counts):
        common = parts[counts.index(max(counts))]
    elif len(parts) > 1:
        pairs = (
            (one, other) for place, part in enumerate(parts) for one in part for other in set().union(*parts[:place])
        )
        alike = alike_names(pairs)
        if alike or len({all(natural_order(name)[0] == 0 for name in part) for part in parts}) > 1:
            each = "; ".join(listed(sorted(part)) for part in parts[:3])
            raise ValueError(
                f"the sites share no class of the target: {each}{alike}. Use the same names, or {remedy}."
            )
        notes.append(f"the sites share no class of the target: all of {listed(sorted(common))} are classes")
        return sorted(common, key=natural_order)
    for key, names in sites.items():
        if names and not common & names:
            hint = alike_names((own, theirs) for own in names for theirs in common)
            left_out[key] = (
                f"shares no class of the target with the other sites: {listed(sorted(names))} here, "
                f"{listed(sorted(common))} there{hint}; use the same names, or {remedy}"
            )
    kept = {key: names for key, names in sites.items() if key not in left_out}
    seen = Counter(name for names in kept.values() for name in names)
    for name in sorted(seen, key=natural_order):
        if seen[name] == 1 < len(kept):
            key = next(key for key, names in kept.items() if name in names)
            hint = alike_names((name, other) for other in seen if other != name)
            alone = f"named at {key} alone, but may be rare elsewhere" if unnamed - {key} else f"at {key} alone"
            notes.append(f"the class {name!r} of the target is {alone}{hint}")
    return sorted(seen, key=natural_order)


def alike_names(pairs: Iterable[tuple[str, str]]) -> str:
    """Return two names that differ in case or blanks alone, in brackets; nothing where there are none."""
    found = min((pair for pair in pairs if _plain(pair[0]) == _plain(pair[1])), default=None)
    return "" if found is None else f" ({found[0]!r} and {found[1]!r} differ in case or blanks alone)"


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()
