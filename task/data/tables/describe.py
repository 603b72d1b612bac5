"""Descriptions of tables: the sums and counts of a site's columns, and what each column seems to hold."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables import description, tails
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.names import (
    DATE,
    MARKED,
    are_marked,
    as_numbers,
    is_sendable,
    listed,
    nearest_columns,
    of_no_class,
)
from florets.task.data.tables.read import Table
from florets.task.data.tables.table_text import class_name

if TYPE_CHECKING:
    import pandas as pd


_ID_NAME = re.compile(
    r"(.*[_\s.-])?(id|ids|uuid|guid|mrn|nr|no|key)|id[_\s.-].*|(row_?)?index|unnamed: ?\d+"
    r"|(patient|subject|participant|case|visit|record|sample|person|study)s?[_\s.-]?(id|no|nr|num|number|code|key)?",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r".*[a-z0-9](ID|Id)")
_PERSON = re.compile(
    r"(.*[_\s.-])?(patient|subject|participant|proband)s?([_\s.-]?(id|ids|no|nr|num|number|code|key))?|mrn|pid",
    re.IGNORECASE,
)
"""Names of a column that says whose a record is, however often it repeats."""
_FEW_ROWS = 20
"""Fewest records for which repeated values of a column are reported."""
_QUANTILES = 4
"""Times `min_count` as many values as a column must have for its quantiles to be sent."""


def target_name(declared: Declaration, names: "pd.Index[str]") -> str:
    """Return the target's column: the declared one, else the last one that nothing else is declared of."""
    if declared.target:
        if declared.target not in names:
            near = nearest_columns([declared.target], list(names))[declared.target]
            hint = f" Did you mean {near!r}?" if near else ""
            raise ValueError(
                f"the table has no column {declared.target!r}, the target.{hint} Its columns are {listed(names)}."
            )
        return declared.target
    apart = {declared.group, declared.owner, *declared.id, *declared.drop, *declared.columns}
    rest = [name for name in names if name not in apart]
    if not rest:
        raise ValueError(f"the table has no column to predict: name it, target=<column>, of {listed(names)}.")
    return rest[-1]


def repeating_group(frame: "pd.DataFrame", declared: Declaration) -> str:
    """Return the column whose repeating ids say which records are one subject's, as a site detects it; else ""."""
    # An id that is declared says so itself.
    declared_ids = [(int(frame[name].nunique()), name) for name in declared.id if name in frame.columns]
    if repeating := [(count, name) for count, name in declared_ids if 1 < count < frame[name].notna().sum()]:
        return min(repeating)[1]
    names = [name for name in declared.inputs_of(tuple(frame.columns)) if names_records(name)]
    target = target_name(declared, frame.columns)
    summaries = _columns(frame[[name for name in names if name != target]], declared, None, len(frame))
    # Visits are of patients: the coarser one.
    return min(((one.distinct, name) for name, one in summaries.items() if one.repeats), default=(0, ""))[1]


def describe_table(
    table: Table, declared: Declaration, train: NDArray[np.int64], subjects: NDArray[np.int64] | None = None
) -> description.Description:
    """Return the description of a table of records with a target, of its training rows.

    `subjects`, int64 (n,), says whose each record is, so that `min_count` counts subjects; None: each its own.
    """
    frame = table.frame
    target = target_name(declared, frame.columns)
    _check_declared(frame[target], declared)
    part = frame.iloc[train]
    names = declared.inputs_of(tuple(frame.columns))
    inputs = part[[name for name in names if name != target]]
    owners = None if subjects is None else np.unique(subjects[train], return_inverse=True)[1]
    summaries = _columns(inputs, declared, owners, len(frame))
    used = [name for name in inputs.columns if summaries[name].role == "input"]
    copied = frame[used].assign(**{target: frame[target].map(class_name)})
    return description.Description(
        form="table",
        records=len(frame),
        train_records=len(part),
        columns=tuple(summaries[name] for name in inputs.columns),
        target=_target(target, part[target], declared, owners),
        duplicates=int(copied.duplicated().sum()),
        notes=table.notes,
        guessed=table.guessed,
        lacking=tuple(name for name in declared.named if name not in frame.columns and is_sendable(name)),
        leaking=tuple(name for name in used if len(part) >= _FEW_ROWS and _is_copy(part[name], part[target])),
    )


def _is_copy(column: "pd.Series[Any]", target: "pd.Series[Any]") -> bool:
    """Return whether a column has one value for each class of the target, or is the target."""
    import pandas as pd

    # Numbered by where a value comes first, columns of different values each are all equal.
    codes, values = pd.factorize(target)
    if 2 * len(values) > len(codes):
        return np.array_equal(as_numbers(column), as_numbers(target))
    return len(values) > 1 and np.array_equal(pd.factorize(column)[0], codes)


def _columns(
    frame: "pd.DataFrame", declared: Declaration, owners: NDArray[np.intp] | None, records: int
) -> dict[str, description.ColumnSummary]:
    """Summarise the training records' columns, of a table of so many records."""
    numeric = frame.select_dtypes(include=["number"])
    words = frame.columns.difference(numeric.columns)
    return {
        **_numeric_columns(numeric, declared, owners, records),
        **{name: _text_column(name, frame[name], declared, owners) for name in words},
    }


def _subjects(known: NDArray[np.bool_], owners: NDArray[np.intp] | None) -> NDArray[np.int64]:
    """Return how many subjects have a known value in each column of `known`, bool (n, columns)."""
    if owners is None or not len(owners):
        return np.asarray(known.sum(axis=0), dtype=np.int64)
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(owners.max() + 1))
    return np.asarray(np.logical_or.reduceat(known[order], starts, axis=0).sum(axis=0), dtype=np.int64)


def _counts(words: "pd.Series[Any]", owners: NDArray[np.intp] | None) -> Counter[str]:
    """Return in how many records, or of how many subjects, each word stands."""
    known = words.notna().to_numpy()
    cells = [str(word) for word in words[known]]
    if owners is None:
        return Counter(cells)
    return Counter(word for word, _ in set(zip(cells, owners[known].tolist(), strict=True)))


def names_records(name: str) -> bool:
    """Return whether a column of this name says which record or person it is."""
    return _ID_NAME.fullmatch(name) is not None or _CAMEL_ID.fullmatch(name) is not None or _names_persons(name)


def _names_persons(name: str) -> bool:
    return _PERSON.fullmatch(name) is not None


def _numeric_columns(
    frame: "pd.DataFrame", declared: Declaration, owners: NDArray[np.intp] | None, records: int
) -> dict[str, description.ColumnSummary]:
    """Summarise all numeric columns together: a table may have very many."""
    values = frame.to_numpy(dtype=np.float64)
    finite = np.isfinite(values)
    known, subjects = finite.sum(axis=0), _subjects(finite, owners)
    filled = np.where(np.isnan(values), 0.0, values)
    count = np.maximum(known, 1)
    mean = filled.sum(axis=0) / count
    m2 = (np.where(np.isnan(values), 0.0, values - mean) ** 2).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN comes last
    distinct = (np.diff(ordered, axis=0) > 0).sum(axis=0) + (known > 0)
    whole: NDArray[np.bool_] = np.all(filled == np.floor(filled), axis=0)
    rising: NDArray[np.bool_] = np.all(np.diff(values, axis=0) > 0, axis=0)
    wanted = set(declared.columns)
    found = {}
    for place, name in enumerate(frame.columns):
        n, different = int(known[place]), int(distinct[place])
        unique = different == n >= _FEW_ROWS
        names_records = bool(whole[place]) and name not in wanted and _is_id(name, different, n)
        # The numbers of a row index: consecutive ones, without those of the test records.
        counts_records = unique and bool(rising[place] or ordered[n - 1, place] - ordered[0, place] < records)
        is_id = names_records or (counts_records and bool(whole[place]) and name not in wanted)
        enough = subjects[place] >= declared.min_count and not is_id
        few = subjects[place] < _QUANTILES * declared.min_count
        shape = {}
        # Of a few different values a rare one is no tail.
        if enough and not few and different > description.MOST_GUESSED:
            outer = _outer(values[:, place], owners, declared.min_count)
            shape = tails.figures_of(ordered[:n, place], float(mean[place]), float(m2[place]), outer)
        found[name] = description.ColumnSummary(
            name=name,
            kind="numeric" if n else "empty",
            role="id" if is_id else "input",
            known=n,
            missing=len(values) - n,
            distinct=different,
            repeats=names_records and not unique,
            whole=bool(whole[place]) and n > 0,
            mean=float(mean[place]) if enough else math.nan,
            m2=float(m2[place]) if enough else math.nan,
            # Of few values the outer quantiles would be the extreme records'.
            quantiles=_quantiles(ordered[:n, place], float(m2[place])) if enough and not few else (),
            **shape,
        )
    return found


def _outer(values: NDArray[np.float64], owners: NDArray[np.intp] | None, min_count: int) -> int:
    """Return how many of the lowest records, and of the highest, are needed for so many subjects to be among them."""
    if owners is None:
        return min_count
    known = np.isfinite(values)
    ordered = owners[known][np.argsort(values[known], kind="stable")]
    return max(
        int(np.sort(np.unique(ends, return_index=True)[1])[min_count - 1]) + 1 for ends in (ordered, ordered[::-1])
    )


def _quantiles(ordered: NDArray[np.float64], m2: float) -> tuple[float, ...]:
    """Return about the 10th, 50th and 90th percentile of sorted values, rounded to a tenth to a half their spread."""
    n = len(ordered)
    std = math.sqrt(m2 / n)
    if not std:
        # All values are one; their mean says so as well.
        return (float(ordered[0]),) * 3
    step = tails.rounding(std)
    rows = [round(share * (n - 1)) for share in (0.1, 0.5, 0.9)]
    return tuple(round(float(ordered[row]) / step) * step for row in rows)


def _text_column(
    name: str, column: "pd.Series[Any]", declared: Declaration, owners: NDArray[np.intp] | None
) -> description.ColumnSummary:
    column = column.map(class_name, na_action="ignore")
    counts = column.value_counts()
    known, missing = int(column.notna().sum()), int(column.isna().sum())
    words = [str(word) for word in counts.index]
    looks_like = _role_of_words(name, words, known, may_be_marked=name not in declared.categorical)
    wanted = name in declared.categorical or (name in declared.columns and looks_like != "marked")
    role: description.Role = "input" if wanted else looks_like
    repeats = role == "id" and known >= _FEW_ROWS and len(counts) < known
    # The server may ask for a column, but not for the names of persons.
    of = Counter[str]() if looks_like == "id" else _counts(column, owners)
    named = {
        str(word): int(n)
        for word, n in counts.items()
        if of[str(word)] >= declared.min_count and is_sendable(str(word))
    }
    categories = dict(list(named.items())[: description.MOST_CATEGORIES]) if role == "input" else {}
    return description.ColumnSummary(
        name=name,
        kind="text" if known else "empty",
        role=role,
        known=known,
        missing=missing,
        distinct=len(counts),
        repeats=repeats,
        categories=dict(sorted(categories.items())),
        other=known - sum(categories.values()) if role == "input" else 0,
    )


def _role_of_words(name: str, words: list[str], known: int, may_be_marked: bool) -> description.Role:
    """Return what a column of words is for; `words` are its different ones."""
    if words and all(DATE.fullmatch(word) for word in words[:_FEW_ROWS]):
        return "date"
    if len(words) > 2 and _names_persons(name):
        return "id"
    named = names_records(name)
    if named and len(words) > 2 and len(words) * 5 > known:
        return "id"
    if may_be_marked and len(words) > description.MOST_GUESSED and are_marked(words):
        return "marked"
    if len(words) > description.MOST_CATEGORIES or (known >= _FEW_ROWS and len(words) * 2 > known):
        return "id" if named or len(words) == known else "words"
    return "input"


def _target(
    name: str, column: "pd.Series[Any]", declared: Declaration, owners: NDArray[np.intp] | None
) -> description.TargetSummary:
    numbers = as_numbers(column)
    numeric = not np.isnan(numbers).any()
    whole = numeric and bool((numbers == np.floor(numbers)).all())
    are_named = not numeric or whole or declared.classes or declared.regression is False
    counts = Counter(class_name(text) for text in column) if are_named else Counter()
    distinct = len(counts) or len(np.unique(numbers))
    _check_kind(name, counts, numeric, declared)
    if whole and not declared.classes and _is_id(name, len(np.unique(numbers)), len(numbers)):
        raise ValueError(_NO_TARGET.format(name=name, holds="ids"))
    if declared.classes:
        # What the classes are called, in place of the cells that mean them.
        means = {class_name(raw): label for label, raws in declared.classes.items() for raw in raws}
        counts = Counter(
            {label: sum(n for raw, n in counts.items() if means[raw] == label) for label in declared.classes}
        )
        counts = +counts
        distinct = len(counts)
    subjects = int(_subjects(np.isfinite(numbers)[:, None], owners)[0])
    enough = numeric and subjects >= declared.min_count
    few = subjects < _QUANTILES * declared.min_count
    classes = dict(sorted(counts.items())) if _are_classes(distinct, len(numbers), numeric, declared) else {}
    named = classes
    if not declared.classes and not (whole and distinct <= description.MOST_GUESSED):
        of = _counts(column.map(class_name), owners)
        named = {label: count for label, count in classes.items() if of[label] >= declared.min_count}
    m2 = float(((numbers - numbers.mean()) ** 2).sum()) if enough else math.nan
    return description.TargetSummary(
        name=name,
        numeric=numeric,
        whole=whole,
        known=len(numbers),
        distinct=distinct,
        classes=named,
        rare=sum(classes.values()) - sum(named.values()),
        mean=float(numbers.mean()) if enough else math.nan,
        m2=m2,
        quantiles=_quantiles(np.sort(numbers), m2) if enough and not few else (),
    )


def _check_declared(column: "pd.Series[Any]", declared: Declaration) -> None:
    """Refuse records of none of the declared classes, of which any split could make a test record."""
    wanted = {class_name(raw) for raws in declared.classes.values() for raw in raws}
    if declared.classes and (wrong := int((~column.map(class_name).isin(wanted)).sum())):
        raise ValueError(of_no_class(wrong, declared.classes.keys()))


def _check_kind(name: str, counts: Mapping[str, int], numeric: bool, declared: Declaration) -> None:
    """Refuse a target whose cells are no classes: the server has their names, and chose the column."""
    known, words = sum(counts.values()), list(counts)
    are_words = not numeric and not declared.classes
    are_many = len(words) > description.MOST_GUESSED or 2 * len(words) > known
    if are_words and declared.regression is not False and are_many and are_marked(words):
        raise ValueError(
            f"the target {name!r}: its cells {MARKED}. If they are classes, set task.table.regression=false."
        )
    if bad := sum(not is_sendable(text) for text in counts):
        raise ValueError(f"the target {name!r}: {bad} of its classes have names that are too long or not printable.")
    if are_words and (role := _role_of_words(name, words, known, may_be_marked=False)) != "input":
        holds = {"id": "ids", "date": "dates"}.get(role, "too many different values for classes")
        raise ValueError(_NO_TARGET.format(name=name, holds=holds))


_NO_TARGET = "the target {name!r} seems to hold {holds}: name another one, target=<column>."


def _is_id(name: str, distinct: int, known: int) -> bool:
    """Return whether integers in a column of this name say whose a record is."""
    if known < _FEW_ROWS or not names_records(name):
        return False
    return distinct * 5 > known or (distinct > 2 and _names_persons(name))


def _are_classes(distinct: int, known: int, numeric: bool, declared: Declaration) -> bool:
    """Return whether a target's values are sent as classes: those of a regression are the records' own."""
    if declared.regression or not distinct:
        return False
    guessed = numeric and declared.regression is None and not declared.classes
    return distinct <= (description.MOST_GUESSED if guessed else description.MOST_CLASSES) and (
        distinct <= 2 or 2 * distinct <= known
    )
