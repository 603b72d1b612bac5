"""Data that the sites of a run sent of their records: moments of columns, counts of classes, losses of models."""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from florets.server_app.data_agreement import DESCRIPTION
from florets.studies.advise.measures import FloatArray
from florets.task.data.tables.description import Description


@dataclass(frozen=True)
class Moments:
    """Number, mean and variance of the known values of a column, or of a target; NaN for a range that is not known.

    `width` is from about the 10th to the 90th percentile: a few outliers do not move it.
    """

    count: int
    mean: float
    variance: float
    width: float = math.nan


@dataclass(frozen=True)
class Site:
    """What a site said of its training records.

    Attributes
    ----------
    columns
        Of the numeric inputs, and the share of each category as ``column = category``.
    counts
        Records of each class (C,); None for values.
    target
        None for classes.
    """

    columns: Mapping[str, Moments] = field(default_factory=dict)
    counts: FloatArray | None = None
    target: Moments | None = None

    @property
    def records(self) -> int:
        """Training records."""
        if self.counts is not None:
            return int(self.counts.sum())
        return self.target.count if self.target else max((one.count for one in self.columns.values()), default=0)


def any_unscaled(folder: Path) -> bool:
    """Return whether sites of a run described arrays whose inputs are far from a standard scale."""
    path = folder / DESCRIPTION
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return any(site["scale"] for site in told.values())


def read_sites(folder: Path, train: Mapping[str, FloatArray], is_regression: bool) -> dict[str, Site]:
    """Return what the sites of a run said of their data.

    Parameters
    ----------
    folder
        The run's, with ``description.json`` where sites described tables.
    train
        By site the training records of each class (C,), or number, mean and sum of squares of the targets (3,).
    """
    path = folder / DESCRIPTION
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = {}
    for key in sorted({*told, *train}):
        site = Description.of(told[key]) if key in told else None
        columns = {} if site is None else _columns(site)
        own = train.get(key)
        if own is None:
            found[key] = Site(columns)
        elif is_regression and site is not None and site.target is not None and math.isfinite(site.target.mean):
            # In its unit, where models train on standardised targets.
            target = site.target
            found[key] = Site(columns, None, Moments(target.known, target.mean, target.m2 / target.known))
        elif is_regression:
            found[key] = Site(columns, None, Moments(int(own[0]), float(own[1]), float(own[2] / max(own[0], 1))))
        else:
            found[key] = Site(columns, own)
    return found


def _columns(site: Description) -> dict[str, Moments]:
    found = {}
    for column in site.columns:
        if column.role != "input":
            continue
        if column.kind == "numeric" and math.isfinite(column.mean) and column.known:
            width = column.quantiles[2] - column.quantiles[0] if len(column.quantiles) == 3 else math.nan
            found[column.name] = Moments(column.known, column.mean, column.m2 / column.known, width)
        for category, count in column.categories.items():
            share = count / column.known
            found[f"{column.name} = {category}"] = Moments(column.known, share, share * (1 - share))
    return found


def read_losses(folder: Path) -> dict[str, list[float]]:
    """Return the loss of each model on each client's training records, from a run's ``loss_matrix.csv``."""
    path = folder / "loss_matrix.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        row["client"]: [float(value) for name, value in row.items() if name.startswith("model_") and value]
        for row in rows
    }
