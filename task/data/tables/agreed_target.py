"""The target that sites agree on: its classes, or that it holds values."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from florets.task.data.tables.agreed_columns import Decisions
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_CLASSES, MOST_GUESSED, TargetSummary
from florets.task.data.tables.names import listed
from florets.task.data.tables.pooling import pooled_figures, spread

Classes = dict[str, tuple[str, ...]]


def pooled_targets(
    declared: Declaration, sites: Mapping[str, TargetSummary], classes: Sequence[str] | None, decided: Decisions
) -> tuple[Classes, float, float]:
    """Return the classes with their raw values, and mean and spread of the targets of a regression.

    `classes` are the run's names; None: they follow from the data.
    """
    if declared.classes:
        return {name: tuple(raws) for name, raws in declared.classes.items()}, 0.0, 1.0
    if classes is not None and not declared.regression:
        return {str(name): (str(name),) for name in classes}, 0.0, 1.0
    numeric = {key: one for key, one in sites.items() if one.numeric}
    is_regression = declared.regression
    if is_regression is None:
        is_regression = len(numeric) * 2 > len(sites) and _are_values(numeric)
    if is_regression:
        if not numeric:
            raise ValueError("task.table.regression=true, but the target holds words at all sites; correct one.")
        why = "has words in the target, where the other sites have numbers; correct it, or name its missing mark"
        decided.left_out.update({key: why for key in sites if key not in numeric})
        count, mean, m2 = pooled_figures(numeric)
        return {}, mean, spread(count, mean, m2)
    sites = _with_classes(declared, sites, decided)
    remedy = "give the cells of each class, task.table.classes"
    names = common_classes({key: set(one.classes) for key, one in sites.items()}, decided, remedy)
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
    decided.left_out.update({key: why for key, one in sites.items() if one.rare and one.distinct > len(names)})
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


def _with_classes(
    declared: Declaration, sites: Mapping[str, TargetSummary], decided: Decisions
) -> dict[str, TargetSummary]:
    """Return the sites whose target can be classes."""

    def fits(one: TargetSummary) -> bool:
        has_values = declared.regression is None and not one.classes and _is_valued(one)
        return one.distinct <= MOST_CLASSES and not has_values

    kept = {key: one for key, one in sites.items() if fits(one)}
    if len(kept) * 2 <= len(sites):
        wordy = next(key for key in sites if key not in kept)
        raise ValueError(f"the target of {wordy} has too many values for classes: set task.table.regression=true.")
    why = "has too many different values in the target, where the other sites have classes; correct it"
    decided.left_out.update({key: why for key in sites if key not in kept})
    return kept


def common_classes(sites: Mapping[str, Set[str]], decided: Decisions, remedy: str) -> list[str]:
    """Return the classes that hang together at most sites, directly or through further sites, in their order.

    A site has no names where it says nothing of its classes; `remedy` makes classes with other names one.
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
        alike = _alike_names(pairs)
        if alike or len({all(natural_order(name)[0] == 0 for name in part) for part in parts}) > 1:
            each = "; ".join(listed(sorted(part)) for part in parts[:3])
            raise ValueError(f"the sites share no class of the target: {each}{alike}. Name them alike, or {remedy}.")
        decided.notes.append(f"the sites share no class of the target: all of {listed(sorted(common))} are classes")
        return sorted(common, key=natural_order)
    for key, names in sites.items():
        if names and not common & names:
            hint = _alike_names((own, theirs) for own in names for theirs in common)
            decided.left_out[key] = (
                f"shares no class of the target with the other sites: {listed(sorted(names))} here, "
                f"{listed(sorted(common))} there{hint}; use the same names, or {remedy}"
            )
    kept = decided.staying(sites)
    seen = Counter(name for names in kept.values() for name in names)
    for name in sorted(seen, key=natural_order):
        if seen[name] == 1 < len(kept):
            key = next(key for key, names in kept.items() if name in names)
            hint = _alike_names((name, other) for other in seen if other != name)
            decided.notes.append(f"the class {name!r} of the target is named at {key} alone{hint}")
    return sorted(seen, key=natural_order)


def _alike_names(pairs: Iterable[tuple[str, str]]) -> str:
    """Return two names that differ in case or blanks alone, in brackets; nothing where there are none."""
    found = min((pair for pair in pairs if _plain(pair[0]) == _plain(pair[1])), default=None)
    return "" if found is None else f" ({found[0]!r} and {found[1]!r} differ in case or blanks alone)"


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()


def why_target(declared: Declaration, sites: Mapping[str, TargetSummary], classes: Classes) -> str:
    """Return why a target of numbers was taken for classes or values, and the key for the other."""
    if declared.regression is not None or declared.classes or not all(one.numeric for one in sites.values()):
        return ""
    if classes:
        why = f"since it has {len(classes)} different integers; for an amount, task.table.regression=true"
        return why if len(classes) > 2 else ""
    whole = all(one.whole for one in sites.values())
    why = f"since it has more than {MOST_GUESSED} different integers" if whole else "since it has fractions"
    return f"{why}; for classes, task.table.regression=false"
