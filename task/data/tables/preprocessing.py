"""`Preprocessing`: how a table's records become a model's inputs and targets, agreed from all sites' descriptions.

It is fixed before training and saved with the models, so that a prediction depends on its own record alone.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.description import MOST_CATEGORIES
from florets.task.data.tables.names import as_numbers, missing_columns, of_no_class
from florets.task.data.tables.table_text import class_name

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class NumericInput:
    """A numeric column: one input, and one more that says whether the value is missing where `indicator` is set.

    `mean` stands for a missing value; `mean` and `std` standardise. All are of the pooled training records. Values
    are clipped at `low` and `high` before, where these are given; `mean` and `std` are of what they become.
    """

    name: str
    mean: float
    std: float
    indicator: bool = False
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if not all(map(_is_number, (self.mean, self.std, *bounds))) or self.std <= 0:
            raise ValueError(f"{self.name!r}: mean, std, low and high must be numbers, and std above 0")
        if len(bounds) == 2 and not bounds[0] < bounds[1]:
            raise ValueError(f"{self.name!r}: low must be below high")
        if not isinstance(self.indicator, bool):
            raise ValueError(f"{self.name!r}: indicator must be true or false")

    @property
    def width(self) -> int:
        """Number of a model's inputs that it makes."""
        return 1 + self.indicator

    def tamed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return raw values (n,), or NaN, clipped."""
        return values if self.low is None and self.high is None else np.clip(values, self.low, self.high)


@dataclass(frozen=True)
class CategoricalInput:
    """A column of words: an input for each category, or one for the second of two; `mode` stands for a missing value.

    With `other` rare and unknown words have an input of their own, without it all inputs are 0 for them.
    """

    name: str
    categories: tuple[str, ...]
    other: bool = True
    mode: str = ""
    indicator: bool = False

    def __post_init__(self) -> None:
        if self.mode not in self.categories or not 0 < len(self.categories) <= MOST_CATEGORIES:
            raise ValueError(f"{self.name!r}: mode must be one of its categories, at most {MOST_CATEGORIES}")
        if not isinstance(self.other, bool) or not isinstance(self.indicator, bool):
            raise ValueError(f"{self.name!r}: indicator and other must be true or false")

    @property
    def shown(self) -> tuple[str, ...]:
        """Categories that have an input."""
        return self.categories[1:] if len(self.categories) == 2 and not self.other else self.categories

    @property
    def width(self) -> int:
        """Number of a model's inputs that it makes."""
        return len(self.shown) + self.other + self.indicator


@dataclass(frozen=True)
class Prepared:
    """A model's inputs, with the missing values of each record, and the words that no site of the run named."""

    x: FloatArray
    missing: NDArray[np.int64]
    unknown: NDArray[np.int64]


@dataclass(frozen=True)
class Preprocessing:
    """What turns a raw table into inputs and targets; the numeric columns come first in the inputs."""

    numeric: tuple[NumericInput, ...]
    categorical: tuple[CategoricalInput, ...]
    target: str
    classes: Mapping[str, tuple[str, ...]]
    """Class name to the raw values that mean it; empty: a regression."""
    target_mean: float = 0.0
    target_std: float = 1.0
    """A regression's targets are standardised by them."""
    ids: tuple[str, ...] = ()
    """Columns that come back in predictions."""

    def __post_init__(self) -> None:
        inputs = [*self.columns, self.target]
        if not self.columns or not all(isinstance(name, str) for name in (*inputs, *self.ids)):
            raise ValueError("numeric and categorical name no column, or one by something else than a text")
        if twice := [name for name in inputs if inputs.count(name) > 1]:
            raise ValueError(f"column {twice[0]!r} is named twice; a target is no input")
        if not _is_number(self.target_mean) or not _is_number(self.target_std) or self.target_std <= 0:
            raise ValueError("target_mean and target_std must be numbers, and target_std above 0")
        raws = [raw for of in self.classes.values() for raw in of]
        if len(set(raws)) < len(raws) or len(self.classes) == 1:
            raise ValueError("classes: at least two, each named once, and no cell in two of them")

    @property
    def is_regression(self) -> bool:
        """Whether the targets are values."""
        return not self.classes

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read as inputs."""
        return (*(column.name for column in self.numeric), *(column.name for column in self.categorical))

    @property
    def width(self) -> int:
        """Number of a model's inputs."""
        return sum(column.width for column in self.numeric) + sum(column.width for column in self.categorical)

    def inputs(self, frame: "pd.DataFrame") -> Prepared:
        """Return the inputs of raw records.

        Numeric columns are float64, the others of strings or None, under the names that all sites use.
        """
        self.check(frame)
        values = self._numbers(frame)
        absent = np.isnan(values)
        mean, std = np.array([[c.mean, c.std] for c in self.numeric], dtype=np.float64).reshape(-1, 2).T
        filled = (np.where(absent, mean, values) - mean) / std
        with_indicator = [place for place, column in enumerate(self.numeric) if column.indicator]
        blocks = [filled, absent[:, with_indicator].astype(np.float64)]
        missing = absent.sum(axis=1)
        unknown = np.zeros(len(frame), dtype=np.int64)
        for column in self.categorical:
            cells = frame[column.name].tolist()
            gone = frame[column.name].isna().to_numpy()
            names = [column.mode if none else class_name(cell) for cell, none in zip(cells, gone, strict=True)]
            texts = np.array(names, dtype=object)
            blocks.append(
                np.stack([texts == category for category in column.shown], axis=1).astype(np.float64)
                if column.shown
                else np.empty((len(frame), 0))
            )
            strange = ~np.isin(texts.astype(str), np.array(column.categories, dtype=str))
            if column.other:
                blocks.append(strange[:, None].astype(np.float64))
            if column.indicator:
                blocks.append(gone[:, None].astype(np.float64))
            missing, unknown = missing + gone, unknown + (strange & ~gone)
        with np.errstate(over="ignore"):
            x = np.concatenate(blocks, axis=1).astype(np.float32)
        if not np.isfinite(x).all():
            raise ValueError("a number of the table is too large; correct it.")
        return Prepared(x, missing.astype(np.int64), unknown.astype(np.int64))

    def check(self, frame: "pd.DataFrame") -> None:
        """Raise ValueError where raw records lack a column, or hold words for numbers or numbers for words."""
        if lacking := missing_columns(self.columns, list(frame.columns)):
            raise ValueError(
                f"the table {lacking}; if a column has another name, add to the node's file: "
                'rename = {<yours> = "<common>"}.'
            )
        for column in self.numeric:
            if frame[column.name].dtype != np.float64 and frame[column.name].notna().any():
                raise ValueError(
                    f"column {column.name!r} holds words here and numbers at the other sites: correct it, or name "
                    "the mark of a missing value in missing."
                )
        for words in self.categorical:
            known = frame[words.name].dropna()
            # Codes are categories, however they were read.
            if known.dtype == np.float64 and len(known) and not known.map(class_name).isin(words.categories).any():
                raise ValueError(
                    f"column {words.name!r} holds numbers here and words at the other sites: correct it."
                )

    def _numbers(self, frame: "pd.DataFrame") -> NDArray[np.float64]:
        if not self.numeric:
            return np.empty((len(frame), 0))
        raw = frame[[column.name for column in self.numeric]].to_numpy(dtype=np.float64, na_value=np.nan)
        return np.stack([column.tamed(raw[:, place]) for place, column in enumerate(self.numeric)], axis=1)

    def targets(self, frame: "pd.DataFrame") -> NDArray[Any]:
        """Return class labels int64 (n,), or standardised values float32 (n,); no target may be missing."""
        column = frame[self.target]
        if self.is_regression:
            numbers = as_numbers(column)
            if not np.isfinite(numbers).all():
                wrong = int((~np.isfinite(numbers)).sum())
                raise ValueError(
                    f"the target {self.target!r} of {wrong} records is not a number: correct it, or "
                    "name the mark of a missing value in missing."
                )
            return ((numbers - self.target_mean) / self.target_std).astype(np.float32)
        labels = self.labels(frame)
        if wrong := int((labels < 0).sum()):
            raise ValueError(of_no_class(wrong, self.classes.keys()))
        return labels

    def labels(self, frame: "pd.DataFrame") -> NDArray[np.int64]:
        """Return the class label of each record, int64 (n,); -1 where its target is none of the classes."""
        label_of = {text: label for label, raws in enumerate(self.classes.values()) for text in map(class_name, raws)}
        label_of |= {raw: label for label, raws in enumerate(self.classes.values()) for raw in raws}
        texts = [str(text) for text in frame[self.target]]
        return np.array([label_of.get(text, label_of.get(class_name(text), -1)) for text in texts], dtype=np.int64)

    def in_unit(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised values (n,) of a regression in the unit that the target came in."""
        return values.astype(np.float64) * self.target_std + self.target_mean

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        for column in values["numeric"]:
            # Few columns are clipped, and all travel with each message.
            for name in [name for name in ("low", "high") if column[name] is None]:
                del column[name]
        # A list: labels follow the order of the classes, and JSON that is sent has sorted keys.
        return {**values, "classes": [[name, list(raws)] for name, raws in self.classes.items()]}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Preprocessing":
        """Return what `to_plain` returned; raise ValueError for any other values, which may come from anywhere.

        In a file by hand all but `target`, and the name, mean and spread of a column, has a default.
        """
        try:
            read: dict[str, Any] = {"numeric": [], "categorical": [], "classes": {}, **values}
            read["numeric"] = tuple(NumericInput(**column) for column in read["numeric"])
            texts = [_texts(column["name"], column["categories"]) for column in read["categorical"]]
            read["categorical"] = tuple(
                CategoricalInput(**{"mode": categories[0], **column, "categories": categories})
                for column, categories in zip(read["categorical"], texts, strict=True)
            )
            pairs = [*(read["classes"].items() if isinstance(read["classes"], Mapping) else read["classes"])]
            read["classes"] = {str(name): _texts(name, raws) for name, raws in pairs}
            if len(read["classes"]) < len(pairs):
                raise ValueError("classes: one is named twice")
            return cls(**{**read, "ids": tuple(map(str, read.get("ids", ())))})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = re.sub(r"(\w+)\.__init__\(\) ", r"\1: ", str(error))
            raise ValueError(f"the description of how tables are prepared cannot be read ({reason}).") from error


def _texts(name: Any, cells: Any) -> tuple[str, ...]:
    """Return the cells of a column or class; TypeError where they are no list, or none."""
    if not isinstance(cells, list | tuple) or not cells:
        raise TypeError(f'{name!r} needs a list of cells, such as ["yes"], not {str(cells)[:40]!r}')
    return tuple(map(str, cells))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
