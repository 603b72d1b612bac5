"""Agreement of all sites, from their descriptions: columns, targets, classes, one `Preprocessing`."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from florets.task.data.array_scale import ArrayScale, pooled_scale
from florets.task.data.samples import fits_shape
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_CLASSES, MOST_GUESSED, ColumnSummary, Description, TargetSummary
from florets.task.data.tables.marks import in_the_way, is_open, is_plain, marks_of
from florets.task.data.tables.names import (
    NODE_FILE_WORDS,
    listed,
    missing_columns,
    nearest_columns,
    toml_key,
    toml_text,
)
from florets.task.data.tables.pooling import (
    categorical_input,
    numeric_input,
    pooled_figures,
    site_scales,
    spread,
)
from florets.task.data.tables.preprocessing import NumericInput, Preprocessing

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
        alike = _alike(pairs)
        if alike or len({all(natural_order(name)[0] == 0 for name in part) for part in parts}) > 1:
            each = "; ".join(listed(sorted(part)) for part in parts[:3])
            raise ValueError(
                f"the sites share no class of the target: {each}{alike}. Use the same names, or {remedy}."
            )
        notes.append(f"the sites share no class of the target: all of {listed(sorted(common))} are classes")
        return sorted(common, key=natural_order)
    for key, names in sites.items():
        if names and not common & names:
            hint = _alike((own, theirs) for own in names for theirs in common)
            left_out[key] = (
                f"shares no class of the target with the other sites: {listed(sorted(names))} here, "
                f"{listed(sorted(common))} there{hint}; use the same names, or {remedy}"
            )
    kept = {key: names for key, names in sites.items() if key not in left_out}
    seen = Counter(name for names in kept.values() for name in names)
    for name in sorted(seen, key=natural_order):
        if seen[name] == 1 < len(kept):
            key = next(key for key, names in kept.items() if name in names)
            hint = _alike((name, other) for other in seen if other != name)
            alone = f"named at {key} alone, but may be rare elsewhere" if unnamed - {key} else f"at {key} alone"
            notes.append(f"the class {name!r} of the target is {alone}{hint}")
    return sorted(seen, key=natural_order)


def _alike(pairs: Iterable[tuple[str, str]]) -> str:
    """Return two names that differ in case or blanks alone, in brackets; nothing where there are none."""
    found = min((pair for pair in pairs if _plain(pair[0]) == _plain(pair[1])), default=None)
    return "" if found is None else f" ({found[0]!r} and {found[1]!r} differ in case or blanks alone)"


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()


_ENOUGH = 20
"""Fewest records with which a site counts in the decision on a column's type."""


@dataclass(frozen=True)
class Agreed:
    """What a run goes by.

    Parameters
    ----------
    input_shape, num_outputs
        Of the model.
    is_regression
        Whether the targets are values.
    classes
        Class names in the order of their labels; empty where labels are numbers, or there are none.
    untrained
        Classes of archives and images that no site trains on, where a site has test samples of one.
    num_targets
        Numbers of the target of a sample; 0: one that is not in a row.
    preprocessing
        Of tables; None where no site has one.
    group
        Column whose equal values belong to one subject; empty: none.
    left_out
        Sites that cannot take part, with the reason.
    notes
        What was decided, for the user.
    warnings
        What was decided and may well not be meant.
    target_why
        Why a table's target was taken for classes or values, and the key for the other; empty where that is declared
        or plain.
    heavy
        Kurtosis of the numeric columns that have heavy tails.
    scale
        By which arrays are standardised; None: not at all.
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    is_regression: bool
    classes: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    num_targets: int = 0
    preprocessing: Preprocessing | None = None
    group: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    target_why: str = ""
    heavy: Mapping[str, float] = field(default_factory=dict)
    scale: ArrayScale | None = None


def agree(
    declared: Declaration,
    sites: Mapping[str, Description],
    classes: Sequence[str] | None = None,
    input_shape: Sequence[int] = (),
    num_outputs: int = 0,
) -> Agreed:
    """Return what the sites have in common; the majority's columns hold.

    Parameters
    ----------
    declared
        What the run says of tables.
    sites
        Description of each site, by client key; at least one.
    classes
        Names of the classes as the run has them; None: they follow from the data.
    input_shape, num_outputs
        As the run has them; empty and 0: they follow from the data.

    Raises
    ------
    ValueError
        If there is no majority for a target, a form or a shape, or nothing to learn is left.
    """
    tables = {key: site for key, site in sorted(sites.items()) if site.form == "table"}
    others = {key: site for key, site in sorted(sites.items()) if site.form != "table"}
    if not tables:
        if declared.standardise == "site":
            raise ValueError(
                "task.table.standardise=site: holds for tables, and the sites have arrays; these are standardised by "
                "pooled figures, or not at all (none)."
            )
        found = _arrays(others, classes, input_shape, num_outputs)
        if declared.standardise == "none":
            return found
        taking_part = {key: site for key, site in others.items() if key not in found.left_out}
        return replace(found, scale=pooled_scale(taking_part, found.input_shape, found.is_regression))
    if others:
        try:
            return _mixed(declared, tables, others, classes, input_shape, num_outputs)
        except ValueError:
            if len(tables) == len(others):
                raise
            kept, form = (tables, "tables") if len(tables) > len(others) else (others, "archives or images")
            rest = others if kept is tables else tables
            found = agree(declared, kept, classes, input_shape, num_outputs)
            reason = f"has data of another form than most sites, which have {form}; give it the same form"
            return replace(found, left_out={**found.left_out, **dict.fromkeys(rest, reason)})
    found = _tables(declared, tables, classes)
    if input_shape and math.prod(input_shape) != found.input_shape[0]:
        raise ValueError(
            f"task.partition_options.input_shape={list(input_shape)}: the tables have inputs of "
            f"{found.input_shape[0]} numbers (constant columns and ids are none); leave it out."
        )
    outputs = num_outputs if num_outputs and found.is_regression else found.num_outputs
    return replace(found, input_shape=tuple(input_shape) or found.input_shape, num_outputs=outputs)


def last_column(target: str) -> str:
    """Return the line that says which column is the target where none is named."""
    return f"the target is the last column, {target!r}, since none is named; for another, target=<column>"


def _tables(declared: Declaration, sites: Mapping[str, Description], classes: Sequence[str] | None) -> Agreed:
    notes: list[str] = []
    warnings: list[str] = []
    left_out: dict[str, str] = {}
    nowhere = set.intersection(*(set(site.lacking) for site in sites.values()))
    for key in dict.fromkeys(declared.named.values()):
        if wrong := [name for name in declared.named if name in nowhere and declared.named[name] == key]:
            raise ValueError(f"task.table.{key} names {listed(wrong)}, and no site has such a column; correct it.")
    target = _target_name(sites, left_out)
    if not declared.target:
        notes.append(last_column(target))
    sites = {key: site for key, site in sites.items() if key not in left_out}
    columns, group, ids = _columns(declared, sites, left_out, notes, warnings)
    sites = {key: site for key, site in sites.items() if key not in left_out}
    _refuse_garbled(declared, sites, left_out)
    sites = {key: site for key, site in sites.items() if key not in left_out}
    if sites:
        targets = {key: _target_of(site) for key, site in sites.items()}
        values, mean, std = pooled_targets(declared, targets, classes, left_out, notes)
        sites = {key: site for key, site in sites.items() if key not in left_out}
        targets = {key: one for key, one in targets.items() if key in sites}
    if not sites:
        raise ValueError(f"no site can take part: {_reasons(left_out)}")
    numeric, categorical = [], []
    heavy: dict[str, float] = {}
    # Each site's own scale, and none at all, know no pooled bounds.
    numbers = declared.numbers if declared.standardise == "pooled" else "standard"
    for name, summaries in columns.items():
        known = {key: summaries[key] for key in sites if key in summaries}
        if _kind(list(known.values())) == "numeric":
            numeric += numeric_input(name, known, numbers, heavy, notes)
        else:
            categorical += categorical_input(name, list(known.values()), notes)
            warnings += _garbled_categories(name, known, sites)
    guessed = [one for one in categorical if one.name not in declared.categorical]
    notes += filter(None, (_note_on_categories(one.name, one.categories) for one in guessed))
    if not numeric and not categorical:
        reasons = "; ".join(notes[-3:]) or "the tables have no other columns than the target"
        raise ValueError(
            f"no column is left that could be an input ({reasons}): name them, task.table.columns or "
            "task.table.categorical; of very few records lower min_count here and at the nodes."
        )
    preprocessing = Preprocessing(
        numeric=tuple(numeric),
        categorical=tuple(categorical),
        target=target,
        classes=values,
        target_mean=mean,
        target_std=std,
        standardise=declared.standardise,
        sites=site_scales(numeric, sites) if declared.standardise == "site" else {},
        ids=tuple(name for name in dict.fromkeys((*declared.id, *ids, group)) if name),
        units=dict(declared.units),
    )
    return Agreed(
        input_shape=(preprocessing.width,),
        num_outputs=max(len(values), 1),
        is_regression=not values,
        classes=tuple(values),
        num_targets=2 if declared.event else 0,
        preprocessing=preprocessing,
        group=group,
        left_out=left_out,
        notes=tuple(notes),
        warnings=(*warnings, *_odd_classes(declared, values), *_doubtful_classes(declared, targets, values)),
        target_why=_target_why(declared, targets, values),
        heavy=heavy,
    )


def _target_why(declared: Declaration, sites: Mapping[str, TargetSummary], classes: Classes) -> str:
    """Return why a target of numbers was taken for classes or values, and the key for the other."""
    if declared.regression is not None or declared.classes or not all(one.numeric for one in sites.values()):
        return ""
    if classes:
        why = f"since it has {len(classes)} different integers; for an amount, task.table.regression=true"
        return why if len(classes) > 2 else ""
    whole = all(one.whole for one in sites.values())
    why = f"since it has more than {MOST_GUESSED} different integers" if whole else "since it has fractions"
    return f"{why}; for classes, task.table.regression=false"


def _odd_classes(declared: Declaration, classes: Classes) -> list[str]:
    """Return a warning where a few words stand among classes that are numbers, which may mark missing values."""
    if declared.classes or declared.regression is False:
        return []
    numbers = [name for name in classes if is_plain(name)]
    words = [name for name in classes if not any(map(str.isdigit, name))]
    if not words or len(words) >= len(numbers):
        return []
    return [
        f"the target's classes are {len(numbers)} numbers and {listed(words)}: if that marks missing values, name it "
        "in missing (task.table or the node's file); if it is a class, task.table.regression=false says so"
    ]


def _doubtful_classes(declared: Declaration, sites: Mapping[str, TargetSummary], classes: Classes) -> Iterator[str]:
    """Yield a warning of classes that may be one, and of as many as a column of amounts has."""
    if declared.classes:
        return
    if alike := _alike(combinations(classes, 2)):
        yield (
            f"two classes of the target may be one{alike}: write them alike at all sites, or give the cells of each "
            "class, task.table.classes"
        )
    if 2 * len(classes) > (records := sum(one.known for one in sites.values())):
        yield (
            f"the target has {len(classes)} classes for {records} training records; if it is an amount, "
            "task.table.regression=true says so"
        )


def _note_on_categories(name: str, words: Sequence[str]) -> str:
    """Return a note on categories some of which are numbers, or would be without a mark; empty where none are."""
    odd = [word for word in words if not is_plain(word)]
    if odd and len(odd) < len(words):
        rest = "" if all(map(is_open, odd)) else "; if a word marks missing values, name it in missing"
        return f"{name!r} has few different values, numbers and words ({listed(odd)}): they are categories{rest}"
    if marks := marks_of(words):
        return f"{name!r} has few different values, and they are categories: its cells {in_the_way(marks)}"
    return ""


def _foreign(words: Iterable[str]) -> set[str]:
    return {word for word in words if not word.isascii()}


def _garbled(words: Mapping[str, Iterable[str]], sites: Mapping[str, Description]) -> dict[str, set[str]]:
    """Return for each site whose encoding is a guess its words with letters that no other site has in any word.

    `words` are those of each site. Where sites whose encoding is certain have such words, they say which are right.
    """
    found = {}
    for key, own in words.items():
        if not sites[key].guessed:
            continue
        others = {other: _foreign(theirs) for other, theirs in words.items() if other != key}
        certain = set().union(*(theirs for other, theirs in others.items() if not sites[other].guessed))
        strange = _foreign(own) - (certain or set().union(*others.values()))
        if strange and others:
            found[key] = strange
    return found


_ENCODING = (
    f"its file is no UTF-8, and was read as cp1252; name its encoding in {NODE_FILE_WORDS}, such as encoding = "
    '"cp1250" (or "cp1252" where the letters are right), or save it as UTF-8'
)


def _refuse_garbled(declared: Declaration, sites: Mapping[str, Description], left_out: dict[str, str]) -> None:
    """Leave out sites with a class of their own that may be another one's name in another encoding."""
    if declared.classes:
        return
    classes = {key: _target_of(site).classes for key, site in sites.items()}
    for key, words in _garbled(classes, sites).items():
        left_out[key] = (
            f"has a class of the target with letters that no other site has ({listed(sorted(words))}); {_ENCODING}"
        )


def _garbled_categories(
    name: str, columns: Mapping[str, ColumnSummary], sites: Mapping[str, Description]
) -> Iterator[str]:
    for key, words in _garbled({key: one.categories for key, one in columns.items()}, sites).items():
        yield f"{key}: {name!r} has letters that no other site has ({listed(sorted(words))}): {_ENCODING}"


def _target_of(site: Description) -> TargetSummary:
    assert site.target is not None
    return site.target


def _reasons(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{key} {reason}" for key, reason in list(left_out.items())[:3])


def _target_name(sites: Mapping[str, Description], left_out: dict[str, str]) -> str:
    names = Counter(_target_of(site).name for site in sites.values())
    name, count = names.most_common(1)[0]
    if len(names) > 1 and count * 2 <= len(sites):
        raise ValueError(
            f"the sites' last columns differ ({listed(sorted(names))}), and no target is named: give target=<column>."
        )
    others = {key: own for key, site in sites.items() if (own := _target_of(site).name) != name}
    why = f"as its last column, the other sites {name!r}, and no target is named: give target=<column>"
    left_out.update({key: f"has {own!r} {why}" for key, own in others.items()})
    return name


def _columns(
    declared: Declaration,
    sites: Mapping[str, Description],
    left_out: dict[str, str],
    notes: list[str],
    warnings: list[str],
) -> tuple[dict[str, dict[str, ColumnSummary]], str, list[str]]:
    """Return the summaries of each input column by site, the column that groups records, and those that are ids."""
    own = {key: {column.name: column for column in site.columns} for key, site in sites.items()}
    counts = Counter(name for columns in own.values() for name in columns)
    order = list(dict.fromkeys(name for columns in own.values() for name in columns))
    if declared.columns and declared.header:
        order = [name for name in declared.columns if name in counts]
        common = order
    else:
        usual = {name for name in order if counts[name] * 2 > len(sites)}
        # In the order of a site that has most of them, whose names are likely to be right.
        first = max(own.values(), key=lambda columns: len(usual & columns.keys()))
        common = [name for name in dict.fromkeys((*first, *order)) if name in usual]
    inputs, repeated, ids = [], [], []
    for name in common:
        summaries = [columns[name] for columns in own.values() if name in columns]
        role = _role(declared, name, summaries)
        if role == "input":
            inputs.append(name)
            continue
        if role == "marked":
            marked = [key for key, columns in own.items() if name in columns and columns[name].role == "marked"]
            marks = tuple(dict.fromkeys(mark for one in summaries for mark in one.marks))
            at = "" if len(marked) == len(own) else f" at {listed(marked)}"
            warnings.append(
                f"{name!r} is not used as an input: its cells{at} {in_the_way(marks)}; if they are categories, name "
                "it in task.table.categorical"
            )
            continue
        ids += [name] if role == "id" else []
        if role == "id" and any(summary.repeats for summary in summaries):
            repeated.append((sum(summary.distinct for summary in summaries), name))
        notes.append(
            f"{name!r} is not used as an input: {_WHY[role]} "
            "(to use it, name it in task.table.columns or .categorical)"
        )
    group = declared.group
    ids_that_repeat = Counter(site.group for site in sites.values() if site.group in declared.id)
    if not group and (repeated or ids_that_repeat):
        # Visits are of patients: the coarser one.
        group = min(repeated)[1] if repeated else ids_that_repeat.most_common(1)[0][0]
        notes.append(f"{group!r} repeats: records with one value of it stay together (task.table.group)")
    kept = set(common)
    if rare := [name for name in order if name not in kept]:
        half = [name for name in rare if counts[name] * 2 == len(sites)]
        if fewer := [name for name in rare if name not in half]:
            notes.append(f"{listed(fewer)}: at fewer than half of the sites, not used")
        if half:
            where = "half of the sites" if len(sites) > 2 else "one site alone"
            warnings.append(
                f"{listed(half)}: at {where}, not used; rename or remove what differs, or name the columns"
            )
    kinds = {name: _kind([columns[name] for columns in own.values() if name in columns]) for name in inputs}
    for key, columns in own.items():
        # A column that most sites have is no misspelling of another one.
        here = [name for name in columns if name in inputs or name not in kept]
        if lacking := missing_columns(inputs, here):
            names = {its: common for common, its in nearest_columns(inputs, here).items() if its}
            foreign = sites[key].guessed and _foreign(here)
            pairs = [f"{toml_key(its)} = {toml_text(common)}" for its, common in names.items()]
            same = f"if they mean the same, declare it in {NODE_FILE_WORDS}: rename = {{{', '.join(pairs)}}}; else "
            rest = f"{same if pairs else ''}add it, or do without it at all sites, task.table.drop"
            left_out[key] = f"{lacking}; {_ENCODING if foreign else rest}"
            continue
        wrong = [
            name
            for name in inputs
            if columns[name].kind not in ("empty", kinds[name])
            and not (kinds[name] == "text" and _are_codes(columns[name]))
        ]
        if wrong and columns[wrong[0]].marks:
            marks = columns[wrong[0]].marks
            left_out[key] = (
                f"has no numbers in column {wrong[0]!r}, unlike the other sites: its cells {in_the_way(marks)}"
            )
        elif wrong:
            holds = "words" if columns[wrong[0]].kind == "text" else "numbers"
            left_out[key] = (
                f"has {holds} in column {wrong[0]!r}, unlike the other sites; correct it, name its missing mark, or, "
                "if the column holds categories, name it in task.table.categorical"
            )
    found = {name: {key: columns[name] for key, columns in own.items() if name in columns} for name in inputs}
    return found, group, ids


_WHY = {
    "id": "it looks like an id, different in each record or named as one",
    "date": "it holds dates",
    "words": "it holds too many different words for categories",
}


def _role(declared: Declaration, name: str, summaries: Sequence[ColumnSummary]) -> str:
    is_marked = any(one.role == "marked" for one in summaries)
    if name in declared.categorical or (declared.header and name in declared.columns and not is_marked):
        return "input"
    if all(one.role == "input" for one in summaries):
        return "input"
    voters = (
        [one for one in summaries if one.known >= _ENOUGH] or [one for one in summaries if one.known] or summaries
    )
    votes = Counter(one.role for one in voters)
    return max(votes, key=lambda role: (votes[role], role == "marked"))


def _are_codes(column: ColumnSummary) -> bool:
    """Return whether numbers can be categories of a column that has words at other sites."""
    return column.kind == "numeric" and column.whole and column.distinct <= MOST_GUESSED


def _kind(summaries: Sequence[ColumnSummary]) -> str:
    """Return what the column holds at most sites, "empty" where nowhere has it a value.

    Few integers are categories where another site has a range of numbers among them, such as 3+.
    """
    texts = [one for one in summaries if one.kind == "text"]
    if any(is_open(word) for one in texts for word in one.categories) and all(
        _are_codes(one) for one in summaries if one.kind == "numeric"
    ):
        return "text"
    kinds = Counter(one.kind for one in summaries if one.kind != "empty")
    # Of two sites the one with words has an unknown mark of a missing value, more likely than not.
    return max(sorted(kinds), key=lambda kind: kinds[kind]) if kinds else "empty"


def _arrays(
    sites: Mapping[str, Description], classes: Sequence[str] | None, input_shape: Sequence[int], num_outputs: int
) -> Agreed:
    """Agree on archives and images: shape by majority, labels up to the largest one, class folders by name."""
    left_out: dict[str, str] = {}
    notes: list[str] = []
    shape = tuple(input_shape) or Counter(_channels_first(site) for site in sites.values()).most_common(1)[0][0]
    for key, site in sites.items():
        if not fits_shape(site.shape, shape):
            left_out[key] = f"has inputs of shape {site.shape}, and the federation's are {shape}"
    if len(left_out) == len(sites):
        raise ValueError(f"no site can take part: {_reasons(left_out)}")
    names: tuple[str, ...] = () if classes is None else tuple(map(str, classes))
    if not names:
        kinds = {key: _targets_of(site) for key, site in sites.items() if key not in left_out}
        votes = Counter(kinds.values()).most_common()
        if "names" in kinds.values() and len(votes) > 1 and votes[0][1] * 2 <= len(kinds):
            raise ValueError(
                "some sites have folders of images, others numbers as labels: name the classes in the order of the "
                "labels, task.data_options.classes=[<first>,...]."
            )
        if votes[0][1] * 2 > len(kinds):
            kind = votes[0][0]
            reason = f"has {{}} as targets, and most sites have {_words_of(kind)}; give it the same form"
            left_out |= {key: reason.format(_words_of(its)) for key, its in kinds.items() if its != kind}
        images = {
            key: set(sites[key].classes) for key, its in kinds.items() if its == "names" and key not in left_out
        }
        if images:
            names = tuple(common_classes(images, left_out, notes, "name all of them, task.data_options.classes"))
    here = [site for key, site in sites.items() if key not in left_out]
    regression = all(not site.classes for site in here)
    outputs = num_outputs or len(names) or max((len(site.classes) for site in here), default=0)
    values = regression and not names
    untrained: tuple[str, ...] = ()
    if any(site.unseen for site in here):
        trained = {name for site in here for name in site.trained}
        every = {name for site in here for name in site.classes}
        untrained = tuple(sorted(every - trained, key=natural_order))
    columns = max((site.targets for site in here), default=0)
    outputs = num_outputs or columns or 1 if values else outputs
    return Agreed(shape, outputs, values, names, untrained, columns, left_out=left_out, notes=tuple(notes))


_TARGETS = {"names": "folders of classes", "labels": "numbers of classes", "values": "values"}


def _targets_of(site: Description) -> str:
    """Return what the targets of an archive or of folders of images are."""
    if site.targets:
        return f"rows of {site.targets} values"
    return "names" if site.form == "images" else "labels" if site.classes else "values"


def _words_of(kind: str) -> str:
    return _TARGETS.get(kind, kind)


def _channels_first(site: Description) -> tuple[int, ...]:
    """Return a site's shape; grey images without an axis of channels get one."""
    return (1, *site.shape) if len(site.shape) == 2 else site.shape


def _mixed(
    declared: Declaration,
    tables: Mapping[str, Description],
    others: Mapping[str, Description],
    classes: Sequence[str] | None,
    input_shape: Sequence[int],
    num_outputs: int,
) -> Agreed:
    """Agree where some sites have tables, others arrays: the tables' columns are the arrays' numbers, as they are."""
    common = _arrays(others, classes, input_shape, num_outputs)
    found = _tables(replace(declared, standardise="none", numbers="standard"), tables, classes)
    prepared = found.preprocessing
    assert prepared is not None
    first = next(site for key, site in tables.items() if key not in found.left_out)
    names = [column.name for column in first.columns]
    order = {
        name: place for place, name in enumerate(declared.columns if declared.header and declared.columns else names)
    }
    summaries = {column.name: column for column in first.columns}
    inputs = [NumericInput(name, 0.0, 1.0, False) for name in order if summaries[name].kind != "text"]
    if prepared.categorical or not fits_shape((len(inputs),), common.input_shape):
        raise ValueError(
            f"some sites have tables, others arrays of shape {common.input_shape}: a table's columns must then be as "
            "many numbers; give all sites the same form."
        )
    values = {} if common.is_regression else prepared.classes
    if not declared.classes and values:
        labels = common.classes or tuple(map(str, range(common.num_outputs)))
        values = {name: (name,) for name in labels}
    plain = replace(prepared, numeric=tuple(inputs), categorical=(), classes=values, target_mean=0.0, target_std=1.0)
    return replace(common, preprocessing=plain, group=found.group, left_out={**common.left_out, **found.left_out})


def as_options(agreed: Agreed) -> dict[str, Any]:
    """Return the options of the partition `own` that follow."""
    columns = {"num_targets": agreed.num_targets} if agreed.num_targets else {}
    return {"input_shape": list(agreed.input_shape), "num_outputs": agreed.num_outputs, **columns}
