"""Predictions of a finished run's model for new inputs, in the run's classes or the target's unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.api.read_data import NewData
from florets.server_app.run_models import Arrays, RunModels

if TYPE_CHECKING:
    import pandas as pd
import csv
from collections.abc import Iterable
from pathlib import Path

MOST_CLASSES = 50
"""Classes up to which the probability of each has a column."""


def _harmless(cells: Iterable[str]) -> list[str]:
    """Return cells that no spreadsheet takes for a formula: an apostrophe goes before what begins like one."""
    return [f"'{cell}" if cell[:1] in tuple("=+-@\t\r") and not _is_number(cell) else cell for cell in cells]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Predictions:
    """Predictions for n samples, each from its own sample alone.

    Attributes
    ----------
    values
        (n,): indices of classes, values of a regression in the target's unit, or an autoencoder's reconstruction
        errors.
    model
        Which model predicts, in words.
    classes
        Names of the C classes; empty where there are none.
    probabilities
        (n, C): of each class; None where there are no classes.
    samples
        What each sample is called.
    ids
        Cells (n,) of a table's columns that name a record.
    counts
        How many cells of each record were missing, or of an unknown category; of tables.
    what
        What the values are: ``prediction`` or ``reconstruction_error``.
    target, unit
        Column that a table's regression predicts, and its unit where that is declared; else empty.
    originals
        The targets that clients in memory were given with, by the names of their classes.
    """

    values: NDArray[Any]
    model: str
    classes: tuple[str, ...] = ()
    probabilities: NDArray[np.float64] | None = None
    samples: Sequence[str] = ()
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    what: str = "prediction"
    target: str = ""
    unit: str = ""
    originals: Mapping[str, str | bool | int | float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype)

    @property
    def labels(self) -> NDArray[Any]:
        """The predictions (n,): classes or values.

        Classes are of the type that the targets in memory had; of files, integers or truth values where their names
        are such.
        """
        return _in_kind(self.classes, self.originals)[self.values] if self.classes else self.values

    def frame(self) -> "pd.DataFrame":
        """Return a row for each sample: ids, prediction, its probability and that of each class, or the value."""
        import pandas as pd

        columns: dict[str, Any] = {**self.ids, self.what: self.labels}
        if self.probabilities is not None:
            columns["probability"] = self.probabilities.max(axis=1)
            columns |= {f"p({name})": own for name, own in zip(self.classes, self.probabilities.T, strict=True)}
        return pd.DataFrame({**columns, **self.counts})

    def write(self, path: Path) -> None:
        """Write one row for each sample as CSV; raise FileExistsError where the file exists already."""
        shown = [self.classes[value] if self.classes else f"{value:.9g}" for value in self.values.tolist()]
        columns: dict[str, Sequence[str]] = {"sample": self.samples, **self.ids, self.what: shown}
        if self.probabilities is not None:
            columns["probability"] = [f"{value:.6g}" for value in self.probabilities.max(axis=1)]
            if len(self.classes) <= MOST_CLASSES:
                columns |= {
                    f"p({name})": [f"{value:.6g}" for value in own]
                    for name, own in zip(self.classes, self.probabilities.T, strict=True)
                }
        columns |= {name: [str(count) for count in counts] for name, counts in self.counts.items()}
        # A name that exists already is refused by the file system itself: nothing can come in between.
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_harmless(columns))
            writer.writerows(_harmless(row) for row in zip(*columns.values(), strict=True))

    def __repr__(self) -> str:
        what = f"classes {', '.join(self.classes[:10])}" if self.classes else self.target or self.what
        return f"<florets predictions for {len(self)} samples by {self.model}: {what}; .labels, .frame()>"

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())  # type: ignore[operator]  # pandas' own, which it does not declare


def predict_data(run: RunModels, state: Arrays, whose: str, new: NewData) -> Predictions:
    """Return a model's predictions for new inputs.

    Parameters
    ----------
    state, whose
        The model, and what it is called.

    Raises
    ------
    ValueError
        If the data do not fit the model.
    """
    from florets.task.new_client import predict

    found = predict(run.task, state, new.x)
    what = "reconstruction_error" if run.task.spec.loss == "reconstruction" else "prediction"
    classes: tuple[str, ...] = ()
    values, target, unit = found.values, "", ""
    prepared = new.preprocessing
    if found.probabilities is not None:
        count = found.probabilities.shape[1]
        classes = (*new.classes[:count], *map(str, range(len(new.classes), count)))
    elif prepared is not None and prepared.is_regression:
        values, target = prepared.in_unit(values), prepared.target
        unit = prepared.units.get(target, "")
    return Predictions(
        values, whose, classes, found.probabilities, new.names, new.ids, new.counts, what, target, unit
    )


def _in_kind(names: Sequence[str], originals: Mapping[str, str | bool | int | float]) -> NDArray[Any]:
    """Return names of classes as what they were made of: integers or truth values, else the names themselves."""
    if originals and all(isinstance(value, str) for value in originals.values()):
        return np.array([originals.get(name, name) for name in names])
    if originals.keys() >= set(names):
        return np.array([originals[name] for name in names])
    if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        return np.array([int(name) for name in names])
    if set(names) == {"False", "True"}:
        return np.array([name == "True" for name in names])
    return np.array(names)
