"""Description of one site's data: sums and counts of its columns that are sent before training, never a record.

From a column with fewer than `min_count` known values nothing but counts is sent, and a category in fewer than
`min_count` records is counted as "other" and not named. Quantiles are rounded to two digits of the spread.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

MOST_CATEGORIES = 100
"""Different words of a column that are still categories; with more it holds names, texts or keys."""
MOST_CLASSES = 50
Kind = Literal["numeric", "text", "empty"]
Role = Literal["input", "id", "date", "words"]


@dataclass(frozen=True)
class ColumnSummary:
    """One column of the training records; `role` says what the site takes it for.

    Parameters
    ----------
    known, missing
        Records with a value, and without.
    distinct
        Different values.
    repeats
        Whether the values look like those of an id, but stand in several records each.
    whole
        Whether all values are whole numbers.
    mean, m2
        Mean, and sum of squared deviations from it; NaN where they are not sent.
    quantiles
        About the 10th, 50th and 90th percentile; empty where they are not sent.
    categories, other
        Records of each category that is named, and of all others together.
    """

    name: str
    kind: Kind
    role: Role
    known: int
    missing: int
    distinct: int
    repeats: bool = False
    whole: bool = False
    mean: float = math.nan
    m2: float = math.nan
    quantiles: tuple[float, ...] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    other: int = 0


@dataclass(frozen=True)
class TargetSummary:
    """The target of the training records: counts of its classes, or mean, sum of squares and quantiles.

    `classes` is empty where there are too many different values; they are then values of a regression.
    """

    name: str
    numeric: bool
    whole: bool
    known: int
    distinct: int
    classes: Mapping[str, int] = field(default_factory=dict)
    mean: float = math.nan
    m2: float = math.nan
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class Description:
    """What a site says of its data.

    Parameters
    ----------
    form
        "table", "archive" or "images".
    records
        All records that have a target.
    untargeted
        Records without a target, which are left out.
    train_records
        Of these those that the site trains on; everything below is of them.
    columns
        Of a table, in the file's order, without target, group, ids and what was dropped.
    target
        Of a table.
    shape
        Of one input, of archives and images.
    classes
        Class names of images; of archives as many numbers as there are labels. Empty: a regression, or a table.
    duplicates, near_duplicates
        Records equal to an earlier one in inputs and target, and in these but for small differences of numbers.
    groups
        Different values of the group's column.
    notes
        What was detected of the file's form.
    """

    form: Literal["table", "archive", "images"]
    records: int
    train_records: int
    untargeted: int = 0
    columns: tuple[ColumnSummary, ...] = ()
    target: TargetSummary | None = None
    shape: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    duplicates: int = 0
    near_duplicates: int = 0
    groups: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return one line of strict JSON: numbers that are not known are null."""
        return json.dumps(_finite(asdict(self)), allow_nan=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Description":
        """Return what `to_json` wrote, read as JSON; raise KeyError, TypeError or ValueError for anything else."""
        read = {entry.name: values[entry.name] for entry in fields(cls)}
        if len(read) != len(values):
            raise ValueError("a description with other entries")
        read["columns"] = tuple(ColumnSummary(**_read(column)) for column in read["columns"])
        read["target"] = None if read["target"] is None else TargetSummary(**_read(read["target"]))
        for name in ("shape", "classes", "notes"):
            read[name] = tuple(read[name])
        return cls(**read)


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {name: math.nan if value is None else value for name, value in values.items()}
    return {**read, "quantiles": tuple(read["quantiles"])}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
