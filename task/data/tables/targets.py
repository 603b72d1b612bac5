"""Agreement on the target: values or classes. A site that does not fit is left out, with its reason."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_CLASSES, MOST_GUESSED, TargetSummary
from florets.task.data.tables.names import listed
from florets.task.data.tables.pooling import pooled_figures, spread

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

    Raises
    ------
    ValueError
        If the sites' targets have no majority, or there is nothing to learn.
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
    names = _class_names(_of_common_classes(sites, left_out, notes))
    if len(names) < 2:
        rare = any(one.rare for one in sites.values())
        raise ValueError(
            "the target has one class at all sites: there is nothing to learn; name another target"
            + (", or name its rare classes, task.table.classes." if rare else ".")
        )
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


def _of_common_classes(
    sites: Mapping[str, TargetSummary], left_out: dict[str, str], notes: list[str]
) -> dict[str, TargetSummary]:
    """Return the sites whose classes hang together with those of most others, directly or through further sites."""
    parts: list[set[str]] = []
    for one in sites.values():
        near = [part for part in parts if part & one.classes.keys()]
        parts = [part for part in parts if part not in near]
        parts += [set(one.classes).union(*near)] if one.classes else []
    counts = [sum(bool(part & one.classes.keys()) for one in sites.values()) for part in parts]
    if len(parts) > 1 and max(counts) * 2 > sum(counts):
        common = parts[counts.index(max(counts))]
    elif len(parts) > 1:
        pairs = [(one, other) for one in sorted(parts[0]) for part in parts[1:] for other in sorted(part)]
        alike = next(
            (f" ({one!r} and {other!r} differ in case or blanks alone)" for one, other in pairs if _same(one, other)),
            "",
        )
        kinds = {all(natural_order(name)[0] == 0 for name in part) for part in parts}
        if alike or len(kinds) > 1:
            each = "; ".join(listed(sorted(part)) for part in parts[:3])
            raise ValueError(
                f"the sites share no class of the target: {each}{alike}. "
                "Use the same names at all sites, or give the cells of each class, task.table.classes."
            )
        notes.append(f"the sites share no class of the target: all of {listed(_class_names(sites))} are classes")
        return dict(sites)
    else:
        common = set().union(*parts)
    for key, one in sites.items():
        if one.classes and not common & one.classes.keys():
            nearest = [
                (own, theirs) for own in sorted(one.classes) for theirs in sorted(common) if _same(own, theirs)
            ]
            hint = "".join(f" ({own!r} and {theirs!r} differ in case or blanks alone)" for own, theirs in nearest[:1])
            left_out[key] = (
                f"shares no class of the target with the other sites: {listed(sorted(one.classes))} here, "
                f"{listed(sorted(common))} there{hint}; use the same names, or give the cells of each class, "
                "task.table.classes"
            )
    kept = {key: one for key, one in sites.items() if key not in left_out}
    seen = Counter(name for one in kept.values() for name in one.classes)
    for name in sorted(seen, key=natural_order):
        if seen[name] == 1 < len(kept):
            key = next(key for key, one in kept.items() if name in one.classes)
            like = next((other for other in sorted(seen) if other != name and _same(name, other)), "")
            hint = f", and differs from {like!r} in case or blanks alone" if like else ""
            notes.append(f"the class {name!r} of the target is at {key} alone{hint}")
    return kept


def _same(one: str, other: str) -> bool:
    return "".join(one.split()).casefold() == "".join(other.split()).casefold()
