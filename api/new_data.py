"""New data for a finished run, in memory or as files: predictions, and which model fits."""

import csv
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.api.client_data import WrongData, arrays, inputs_of, inputs_of_torch, is_frame, is_torch_data, of_torch
from florets.api.federation import original_labels, write_table
from florets.api.read_data import (
    NewData,
    chosen_model,
    client_keys,
    is_mixture,
    read_arrays,
    read_data,
    read_table,
)
from florets.conf.problems import ConfigError
from florets.server_app.run_models import Arrays, RunModels
from florets.server_app.saved_groups import nearest_descriptor, nearest_group
from florets.task.device import one_thread_within
from florets.task.new_client import evaluate_model, evaluate_models, fitted_shares, model_losses

if TYPE_CHECKING:
    import pandas as pd

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


@dataclass(frozen=True)
class Assignment:
    """The model that fits new data.

    Attributes
    ----------
    model
        Its number; None where the run's clients mix all models.
    misfit
        That none of the run's groups fits, in words, and this is the nearest by its loss; empty where one does.
    losses
        Of each model on them, (K,); empty where there were no targets.
    loss, accuracy
        Of the model, or of the mixture; NaN without targets, and None in a task without classes.
    rmse, r2
        Of a regression, in the targets' unit; None where they are not defined.
    unit
        Of a regression's values, where it is declared.
    shares
        Share of each model, (K,), in a run whose clients mix all models; else None.
    """

    model: int | None
    why: str
    num_examples: int
    losses: NDArray[np.float64]
    loss: float = float("nan")
    accuracy: float | None = None
    rmse: float | None = None
    r2: float | None = None
    unit: str = ""
    shares: NDArray[np.float64] | None = None
    misfit: str = ""


def assign_data(run: RunModels, new: NewData) -> Assignment:
    """Return which model fits data, and how well.

    CLoVE's frozen clusters, the groups of a discovery or those of FLUX decide where the run has them, else the lowest
    loss; of a run whose clients mix models the data's share of each is fitted.
    """
    x = new.x
    # An autoencoder's targets are its inputs.
    y = np.zeros(len(x), dtype=np.int64) if new.y is None else new.y
    if is_mixture(run):
        shares = fitted_shares(run.task, run.models, x, y, run.class_shares)
        loss, accuracy = evaluate_models(run.task, run.models, shares, x, y)
        none = np.empty(0)
        return Assignment(None, "the run's clients mix all models", len(x), none, loss, accuracy, shares=shares)
    losses = model_losses(run.task, run.models, x, y)
    chosen, why, misfit = int(np.argmin(losses)), "its loss on these data is the lowest", ""
    if run.frozen_by == "losses":
        chosen = run.nearest_frozen(model_losses(run.task, run.frozen_models(), x, y))
        why = "its cluster's losses, saved when the run froze the clustering, are the nearest"
    if run.frozen is not None and run.frozen.training is not None:
        group, cosine = nearest_group(run.frozen, run.task, run.config.train, x, y)
        if group < 0:
            misfit = f"None of the run's groups fits these data (cosine {cosine:.2f} with the nearest one's centre)."
        else:
            chosen, why = (
                group,
                f"the run's first model learns from them what that group learned (cosine {cosine:.2f})",
            )
            training = run.frozen.training
            if training.folds_of(len(x)) == 1:
                needed = training.folds * training.size
                why += f", but {len(x)} samples are too few to be sure, {needed} would be enough"
    if run.frozen is not None and run.frozen.by == "descriptors":
        chosen = nearest_descriptor(run.frozen, run.task, x, y)
        why = "of what the run's common model makes of them, that group's is the nearest"
    if len(losses) == 1:
        why = "the run has only this one"
    loss, accuracy = evaluate_model(run.task, run.models[chosen], x, y)
    rmse, r2, unit = _errors(run, new, loss)
    return Assignment(chosen, why, len(x), losses, loss, accuracy, rmse, r2, unit, misfit=misfit)


def assign_unlabelled(run: RunModels, new: NewData) -> Assignment:
    """Return which model fits inputs without targets."""
    if run.frozen is None or run.frozen.by != "descriptors":
        raise ConfigError(
            "unlabelled=true, or no y: this run places data by their targets, too; one of strategy=flux needs none."
        )
    chosen = nearest_descriptor(run.frozen, run.task, new.x, None)
    why = "of what the run's common model makes of the inputs, that group's is the nearest"
    return Assignment(chosen, why, len(new.x), np.empty(0))


def _errors(run: RunModels, new: NewData, loss: float) -> tuple[float | None, float | None, str]:
    """Return a regression's root mean squared error in the targets' unit, R2 where that is defined, and the unit."""
    if "squared_error" not in run.task.spec.loss or new.y is None:
        return None, None, ""
    mean_square = loss * (2 if run.task.spec.loss == "half_squared_error" else 1)
    spread = float(new.y.astype(np.float64).var())
    prepared = new.preprocessing
    scale = 1.0 if prepared is None else prepared.target_std
    unit = "" if prepared is None else prepared.units.get(prepared.target, "")
    return mean_square**0.5 * scale, 1 - mean_square / spread if spread else None, unit


@one_thread_within()
def predict_new(
    folder: Path, run: RunModels, x: Any, client: str | int | None = None, model: int | None = None
) -> Predictions:
    """Return predictions for new inputs; `florets.api.run.Run.predict` explains the parameters."""
    given = {} if model is None else {"model": str(model)}
    if client is not None:
        given["client"] = _key(folder, client)
    state, whose = chosen_model(run, folder, given)
    with _in_own_words():
        found = predict_data(run, state, whose, _read(folder, run, x, None, given.get("client"), labelled=False))
    return replace(found, originals=original_labels(Path(run.config.data_dir)))


@one_thread_within()
def assign_new(folder: Path, run: RunModels, x: Any, y: Any = None, client: str | int | None = None) -> Assignment:
    """Return which model fits new data; `florets.api.run.Run.assign` explains the parameters."""
    has_targets = run.task.spec.loss != "reconstruction"
    in_file = isinstance(x, str | Path) or is_frame(x) or is_torch_data(x)
    key = None if client is None else _key(folder, client)
    with _in_own_words():
        if y is None and has_targets and (not in_file or run.frozen_by == "descriptors"):
            return assign_unlabelled(run, _read(folder, run, x, None, key, labelled=False))
        return assign_data(run, _read(folder, run, x, y, key, labelled=has_targets))


def _read(folder: Path, run: RunModels, x: Any, y: Any, client: str | None, labelled: bool) -> NewData:
    if isinstance(x, str | Path):
        _refuse_targets(y)
        return read_data(run, folder, {"data": str(x), **({} if client is None else {"client": client})}, labelled)
    if is_frame(x):
        _refuse_targets(y)
        with tempfile.TemporaryDirectory() as place:
            # Read exactly as a site's file is.
            return read_table(run, folder, write_table(x, Path(place)), client, labelled)
    if run.preprocessing is not None:
        raise ConfigError("x: the run was on tables; give a data frame of raw records, or a file.")
    if is_torch_data(x):
        _refuse_targets(y)
        if not labelled:
            return read_arrays(run, inputs_of_torch(x), None)
        samples = of_torch(x)
        return read_arrays(run, samples.x, samples.y)
    if not labelled or y is None:
        return read_arrays(run, inputs_of(x), None)
    found = arrays(x, y)
    return read_arrays(run, found.x, found.y)


def _refuse_targets(y: Any) -> None:
    if y is not None:
        raise ConfigError("y: a data frame, data set, file or folder has the targets in it; leave y out.")


def _key(folder: Path, client: str | int) -> str:
    """Return a client's key; an integer stands for one that is padded with zeros."""
    if isinstance(client, str):
        return client
    same = [key for key in client_keys(folder) if key.isdecimal() and int(key) == client]
    return same[0] if len(same) == 1 else str(client)


@contextmanager
def _in_own_words() -> Iterator[None]:
    """Raise ConfigError where data cannot be used, in the words of keyword arguments."""
    try:
        yield
    except WrongData as error:
        raise ConfigError(f"x: {error}") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error).replace("task.data_options.", "")) from error
