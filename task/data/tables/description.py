"""Description of one site's data: sums and counts of its columns that are sent before training, never a record.

From a column with fewer than `min_count` known values, or one that looks like an id, nothing but counts is sent, and
a category in fewer than `min_count` records is counted as "other" and not named. Quantiles are sent of four times as
many values, and rounded. Of a target, classes that are words in fewer than `min_count` records are counted as rare
and not named; values of a regression are not named either. Where records are grouped by subject, `min_count` counts
subjects.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

MOST_CATEGORIES = 100
"""Different words of a column that are still categories; with more it holds names, texts or keys."""
MOST_CLASSES = 50
MOST_GUESSED = 10
"""Different whole numbers of a target that are still taken for classes where nothing is declared."""
INNER = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Levels of a column's knots between its tails."""

Kind = Literal["numeric", "text", "empty"]
Role = Literal["input", "id", "date", "words", "marked"]
Mark = Literal[
    "blanks",
    "no-break blanks",
    "apostrophes",
    "underscores",
    "commas",
    "points",
    "a currency",
    "a percent sign",
    "colons (a time)",
    "a slash",
    "brackets",
    "a minus sign other than -",
    "quotation marks",
    "a sign such as < or +",
    "letters (a unit)",
    "a decimal mark of another kind",
]
"""Reasons why a cell is no number."""


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
    knots
        Seven quantiles: those of the tails, and between them those of `INNER`; empty where they are not sent.
    tail
        Records of each tail: at or beyond the outer knots.
    inner_mean, inner_m2
        As `mean` and `m2`, of values that are clipped at the outer knots.
    skew, kurtosis
        Of all values, in two digits.
    categories, other
        Records of each category that is named, and of all others together.
    marks
        Of a column that is "marked": what stands in the way of its numbers, by kind.
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
    knots: tuple[float, ...] = ()
    tail: int = 0
    inner_mean: float = math.nan
    inner_m2: float = math.nan
    skew: float = math.nan
    kurtosis: float = math.nan
    categories: Mapping[str, int] = field(default_factory=dict)
    other: int = 0
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class TargetSummary:
    """The target of the training records: counts of its classes, or mean, sum of squares and quantiles.

    `classes` is empty where there are too many different values, for classes or for so few records; `rare` counts the
    records of classes that are not named.
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
    rare: int = 0


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
    unseen
        Test records of a class that the site trains on nowhere; once the sites have agreed, that no site does: they
        are left out.
    columns
        Of a table, in the file's order, without target, group, ids and what was dropped.
    target
        Of a table; of an archive of values, which names none, their mean and sum of squares.
    feature_means, feature_m2
        Of an archive: mean and sum of squared deviations of each number of its inputs; empty where not sent.
    is_real
        Whether an archive's inputs are vectors of floating numbers.
    shape
        Of one input, of archives and images.
    classes
        Class names of images; of archives as many numbers as there are labels. Empty: a regression, or a table.
    targets
        Of an archive: numbers of the target of a record, where it is a row of them.
    trained
        Those of `classes` of which the site has training samples.
    are_pixels
        Whether an archive's inputs look like integers of pixels, 0 to 255, that nothing scales.
    duplicates
        Records equal to an earlier one in inputs and target.
    groups
        Different values of the group's column.
    group, regression
        What the site split its table by: the column whose equal values stay together (empty: none), and whether the
        target was taken for values; None where the site's files are split already.
    notes
        What was detected of the file's form.
    lacking
        Columns that the run declares and the table does not have.
    leaking
        Columns with one value for each value of the target.
    guessed
        Whether a table is no UTF-8, and its encoding a guess.
    """

    form: Literal["table", "archive", "images"]
    records: int
    train_records: int
    untargeted: int = 0
    unseen: int = 0
    columns: tuple[ColumnSummary, ...] = ()
    target: TargetSummary | None = None
    feature_means: tuple[float, ...] = ()
    feature_m2: tuple[float, ...] = ()
    is_real: bool = False
    shape: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    targets: int = 0
    trained: tuple[str, ...] = ()
    are_pixels: bool = False
    duplicates: int = 0
    groups: int = 0
    group: str = ""
    regression: bool | None = None
    notes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    leaking: tuple[str, ...] = ()
    guessed: bool = False

    def to_json(self) -> str:
        """Return one line of strict JSON: figures that are not known are left out."""
        columns, target = [_known(column) for column in self.columns], self.target
        values = {**vars(self), "columns": columns, "target": None if target is None else _known(target)}
        return json.dumps(values, allow_nan=False)

    def without_figures(self) -> "Description":
        """Return the description with no more than names, kinds and counts of columns, and the target's classes."""
        counts = ("name", "kind", "role", "known", "missing", "distinct", "repeats", "whole", "marks")
        columns = tuple(
            ColumnSummary(**{name: getattr(one, name) for name in counts}, other=one.known) for one in self.columns
        )
        target = None if self.target is None else replace(self.target, mean=math.nan, m2=math.nan, quantiles=())
        return replace(
            self,
            columns=columns,
            target=target,
            are_pixels=False,
            feature_means=(),
            feature_m2=(),
            leaking=(),
            unseen=0,
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Description":
        """Return what `to_json` wrote, read as JSON; raise KeyError, TypeError or ValueError for anything else."""
        read = {entry.name: values[entry.name] for entry in fields(cls)}
        if len(read) != len(values):
            raise ValueError("a description with other entries")
        read["columns"] = tuple(
            ColumnSummary(**{**_read(column), **_tuples(column, "knots", "marks")}) for column in read["columns"]
        )
        read["target"] = None if read["target"] is None else TargetSummary(**_read(read["target"]))
        for name in ("feature_means", "feature_m2", "shape", "classes", "trained", "notes", "lacking", "leaking"):
            read[name] = tuple(read[name])
        return cls(**read)


def _known(summary: ColumnSummary | TargetSummary) -> dict[str, Any]:
    """Return a summary's values as JSON has them; what is not known is left out, and has its default then."""
    return {name: value for name, value in vars(summary).items() if value == value and value not in ((), {})}


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, **_tuples(values, "quantiles")}


def _tuples(values: Mapping[str, Any], *names: str) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(values.get(name, ())) for name in names}
