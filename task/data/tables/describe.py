"""Descriptions of tables: the sums and counts of a site's columns, and what each column seems to hold."""

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import (
    MOST_CATEGORIES,
    MOST_CLASSES,
    ColumnSummary,
    Description,
    Role,
    TargetSummary,
)
from florets.task.data.tables.names import class_name, listed
from florets.task.data.tables.read import Table

if TYPE_CHECKING:
    import pandas as pd

_ID_NAME = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|mrn|nr|no|index|key|unnamed: ?\d+)$|(^|[_\s.-])(id|index)[_\s.-]", re.IGNORECASE
)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
_NEAR = 0.01
"""Fractions of a column's spread that two values may differ by and be nearly equal."""
_FEW_ROWS = 20
"""Records below which nothing is said of how a column's values repeat."""


def target_name(declared: Declaration, names: "pd.Index[str]") -> str:
    """Return the target's column: the declared one, else the last one that nothing else is declared of.

    Raises
    ------
    ValueError
        If the table has no such column.
    """
    if declared.target:
        if declared.target not in names:
            raise ValueError(
                f"the table has no column {declared.target!r}, the target; its columns are {listed(names)}."
            )
        return declared.target
    apart = {
        declared.group,
        declared.owner,
        *declared.id,
        *declared.drop,
        *(declared.columns if declared.header else ()),
    }
    rest = [name for name in names if name not in apart]
    if not rest:
        raise ValueError(
            f"the table has no column to predict; name it, target=<column>. Its columns are {listed(names)}."
        )
    return rest[-1]


def describe_table(table: Table, declared: Declaration, train: NDArray[np.int64]) -> Description:
    """Return the description of a table.

    Parameters
    ----------
    table
        All of its records, those without a target left out.
    train
        Rows of the training records.
    """
    frame = table.frame
    target = target_name(declared, frame.columns)
    part = frame.iloc[train]
    names = declared.inputs_of(tuple(frame.columns))
    inputs = part[[name for name in names if name != target]]
    numeric = inputs.select_dtypes(include=["number"])
    summaries = {
        **_numeric_columns(numeric, declared),
        **{name: _text_column(name, inputs[name], declared) for name in inputs.columns.difference(numeric.columns)},
    }
    used = [name for name in inputs.columns if summaries[name].role == "input"]
    duplicates = len(frame) - len(set(_row_keys(frame[[*used, target]])))
    rounded = frame[[*used, target]].copy()
    numbers = [name for name in used if summaries[name].m2 > 0]
    rounded[numbers] = np.round(frame[numbers] / [_NEAR * _spread(summaries[name]) for name in numbers])
    near = len(frame) - len(set(_row_keys(rounded))) - duplicates
    return Description(
        form="table",
        records=len(frame),
        train_records=len(part),
        columns=tuple(summaries[name] for name in inputs.columns),
        target=_target(target, part[target], declared),
        duplicates=duplicates,
        near_duplicates=max(near, 0),
        groups=int(frame[declared.group].nunique()) if declared.group in frame.columns else 0,
        notes=table.notes,
    )


def _spread(column: ColumnSummary) -> float:
    return math.sqrt(column.m2 / column.known)


def _row_keys(frame: "pd.DataFrame") -> list[int]:
    import pandas as pd

    return (
        [int(key) for key in pd.util.hash_pandas_object(frame, index=False)]
        if len(frame.columns)
        else [0] * len(frame)
    )


def _numeric_columns(frame: "pd.DataFrame", declared: Declaration) -> dict[str, ColumnSummary]:
    """Summarise all numeric columns together: a table may have very many."""
    values = frame.to_numpy(dtype=np.float64)
    known = np.isfinite(values).sum(axis=0)
    filled = np.where(np.isnan(values), 0.0, values)
    count = np.maximum(known, 1)
    mean = filled.sum(axis=0) / count
    m2 = (np.where(np.isnan(values), 0.0, values - mean) ** 2).sum(axis=0)
    ordered = np.sort(values, axis=0)  # NaN comes last
    distinct = (np.diff(ordered, axis=0) > 0).sum(axis=0) + (known > 0)
    whole: NDArray[np.bool_] = np.all(filled == np.floor(filled), axis=0)
    rising: NDArray[np.bool_] = np.all(np.diff(values, axis=0) > 0, axis=0)
    found = {}
    for place, name in enumerate(frame.columns):
        n, different = int(known[place]), int(distinct[place])
        unique = different == n >= _FEW_ROWS and bool(whole[place])
        span = ordered[n - 1, place] - ordered[0, place] if n else 0.0
        named = _ID_NAME.search(name) is not None
        counted = unique and (named or rising[place] or span == n - 1)
        repeated = named and bool(whole[place]) and n >= _FEW_ROWS and different * 5 > n and not unique
        enough = n >= declared.min_count
        std = math.sqrt(m2[place] / n) if n else 0.0
        found[name] = ColumnSummary(
            name=name,
            kind="numeric" if n else "empty",
            role="id" if name not in declared.columns and (counted or repeated) else "input",
            known=n,
            missing=len(values) - n,
            distinct=different,
            repeats=bool(repeated),
            whole=bool(whole[place]) and n > 0,
            mean=float(mean[place]) if enough else math.nan,
            m2=float(m2[place]) if enough else math.nan,
            quantiles=_quantiles(ordered[:n, place], std) if enough else (),
        )
    return found


def _quantiles(ordered: NDArray[np.float64], std: float) -> tuple[float, ...]:
    """Return about the 10th, 50th and 90th percentile of sorted values, rounded so that none is a record's value."""
    if not std:
        # All values are one; their mean says so as well.
        return (float(ordered[0]),) * 3
    digits = 1 - math.floor(math.log10(std))
    rows = [round(share * (len(ordered) - 1)) for share in (0.1, 0.5, 0.9)]
    return tuple(round(float(ordered[row]), digits) for row in rows)


def _text_column(name: str, column: "pd.Series[Any]", declared: Declaration) -> ColumnSummary:
    column = column.map(class_name, na_action="ignore") if name in declared.categorical else column
    counts = column.value_counts()
    known, missing = int(column.notna().sum()), int(column.isna().sum())
    sample = [str(value) for value in counts.index[:_FEW_ROWS]]
    dated = bool(sample) and all(_DATE.fullmatch(value) for value in sample)
    named = _ID_NAME.search(name) is not None
    many = len(counts) > MOST_CATEGORIES or (known >= _FEW_ROWS and len(counts) * 2 > known)
    wanted = name in declared.categorical
    role: Role = "input"
    if not wanted and dated:
        role = "date"
    elif not wanted and (many or (named and len(counts) > 2)):
        role = "id" if named or len(counts) == known else "words"
    repeats = role == "id" and known >= _FEW_ROWS and len(counts) < known
    categories = {} if role != "input" else {str(key): int(n) for key, n in counts.items() if n >= declared.min_count}
    if len(categories) > MOST_CATEGORIES:
        categories = dict(list(categories.items())[:MOST_CATEGORIES])
    return ColumnSummary(
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


def _target(name: str, column: "pd.Series[Any]", declared: Declaration) -> TargetSummary:
    import pandas as pd

    texts = column.astype(object)
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    numeric = bool(np.isfinite(numbers).all())
    whole = numeric and bool((numbers == np.floor(numbers)).all())
    names = [class_name(text) for text in texts] if not numeric or whole else []
    counts: dict[str, int] = {}
    for text in names:
        counts[text] = counts.get(text, 0) + 1
    few = 0 < len(counts) <= MOST_CLASSES
    enough = numeric and len(numbers) >= declared.min_count
    ordered, std = np.sort(numbers), float(numbers.std()) if enough else 0.0
    return TargetSummary(
        name=name,
        numeric=numeric,
        whole=whole,
        known=len(numbers),
        distinct=len(counts) or len(np.unique(numbers)),
        classes=dict(sorted(counts.items())) if few else {},
        mean=float(numbers.mean()) if enough else math.nan,
        m2=float(((numbers - numbers.mean()) ** 2).sum()) if enough else math.nan,
        quantiles=_quantiles(ordered, std) if enough else (),
    )
