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
from typing import Any, Literal, TypeVar

One = TypeVar("One")
MOST_CATEGORIES = 100
"""Different words of a column that are still categories; with more it holds names, texts or keys."""
MOST_CLASSES = 50
MOST_GUESSED = 10
"""Different whole numbers of a target that are still taken for classes where nothing is declared."""
INNER = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Levels of a column's knots between its tails."""

Kind = Literal["numeric", "text", "empty"]
Role = Literal["input", "id", "date", "words", "marked"]


@dataclass(frozen=True)
class ColumnSummary:
    """One column of the training records: counts, sums, quantiles; figures that are not sent are NaN or empty."""

    name: str
    kind: Kind
    role: Role
    known: int
    missing: int
    distinct: int
    repeats: bool = False
    """Values look like an id's, but stand in several records each."""
    whole: bool = False
    mean: float = math.nan
    m2: float = math.nan
    """Sum of squared deviations from the mean."""
    quantiles: tuple[float, ...] = ()
    """About the 10th, 50th and 90th percentile."""
    knots: tuple[float, ...] = ()
    """Seven quantiles: those of the tails, and between them those of `INNER`."""
    tail: int = 0
    """Records at or beyond each outer knot."""
    inner_mean: float = math.nan
    inner_m2: float = math.nan
    """As `mean` and `m2`, of values that are clipped at the outer knots."""
    skew: float = math.nan
    kurtosis: float = math.nan
    categories: Mapping[str, int] = field(default_factory=dict)
    other: int = 0
    """Records of categories that are not named."""


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
    """What a site says of its data; what is not counts of all records is of the training records."""

    form: Literal["table", "archive", "images"]
    records: int
    """All records that have a target."""
    train_records: int
    untargeted: int = 0
    unseen: int = 0
    """Test records of a class that the site, or once the sites have agreed no site, trains on: they are left out."""
    columns: tuple[ColumnSummary, ...] = ()
    target: TargetSummary | None = None
    """Of a table; of an archive of values."""
    feature_means: tuple[float, ...] = ()
    feature_m2: tuple[float, ...] = ()
    is_real: bool = False
    """Whether an archive's inputs are vectors of floating numbers."""
    shape: tuple[int, ...] = ()
    """Of one input, of archives and images."""
    classes: tuple[str, ...] = ()
    """Names of images' classes; of archives as many numbers as there are labels."""
    targets: int = 0
    """Numbers of one target, where it is a row of them."""
    trained: tuple[str, ...] = ()
    """Those of `classes` of which the site has training samples."""
    are_pixels: bool = False
    """Whether an archive's inputs look like pixels of 0 to 255 that nothing scales."""
    duplicates: int = 0
    """Records equal to an earlier one in all inputs and the target."""
    group: str = ""
    regression: bool | None = None
    """What the site split its table by: a column, and whether the target is a value; None: it is split already."""
    notes: tuple[str, ...] = ()
    """What was detected of the file's form."""
    lacking: tuple[str, ...] = ()
    """Columns that the run declares and the table does not have."""
    leaking: tuple[str, ...] = ()
    """Columns with one value for each value of the target."""
    guessed: bool = False
    """Whether a table is no UTF-8, and its encoding a guess."""

    def to_json(self) -> str:
        """Return one line of strict JSON: figures that are not known are left out."""
        columns, target = [_known(column) for column in self.columns], self.target
        values = {**vars(self), "columns": columns, "target": None if target is None else _known(target)}
        return json.dumps(values, allow_nan=False)

    def without_figures(self) -> "Description":
        """Return the description with no more than names, kinds and counts of columns, and the target's classes."""
        counts = ("name", "kind", "role", "known", "missing", "distinct", "repeats", "whole")
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
            duplicates=0,
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Description":
        """Return what `to_json` wrote, read as JSON; raise KeyError, TypeError or ValueError for anything else."""
        if values.keys() != {entry.name for entry in fields(cls)}:
            raise ValueError("a description with other entries")
        columns = tuple(_read(ColumnSummary, column) for column in values["columns"])
        target = None if values["target"] is None else _read(TargetSummary, values["target"])
        return replace(_read(cls, values), columns=columns, target=target)


def _known(summary: ColumnSummary | TargetSummary) -> dict[str, Any]:
    """Return a summary's values as JSON has them; what is not known is left out, and has its default then."""
    return {name: value for name, value in vars(summary).items() if value == value and value not in ((), {})}


def _read(kind: type[One], values: Mapping[str, Any]) -> One:
    """Return what `_known` wrote, whose tuples are lists in JSON."""
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
