"""New data for a finished run, in memory or as files: predictions, and which model fits."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.api.client_data import (
    WrongData,
    arrays,
    inputs_of,
    inputs_of_torch,
    is_frame,
    is_torch_data,
    of_torch,
    said_of,
)
from florets.api.federation import csv_of
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.saved import reading
from florets.engines.own_nodes import own_nodes
from florets.reports.clients import CLIENTS, read_clients
from florets.reports.console import listed
from florets.server_app.data_agreement import declaration_of
from florets.server_app.run_models import Arrays, RunModels
from florets.strategies.base.groups import Frozen
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.data.new_data import Form, NewData, numbered, read_new, read_new_table, shaped
from florets.task.data.own import own
from florets.task.data.samples import samples, targets
from florets.task.data.tables.declaration import Site, is_table, read_site
from florets.task.data.tables.table_text import is_number
from florets.task.device import one_thread_within
from florets.task.new_client import (
    descriptor,
    evaluate_model,
    evaluate_models,
    fitted_shares,
    fold_rows,
    model_losses,
    predict,
)
from florets.task.node_config import CLIENT_ID, DATA_DIR
from florets.task.registry import check_options
from florets.task.settings import SQUARED, of_values, scales_targets
from florets.task.task import Task
from florets.task.training.folds import on_folds
from florets.task.training.settings import Training

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 5
_FORM = ("classes", "image_size", "grayscale")
"""Options by which the run's own data were read, and new ones are."""
_AS_WRITTEN = {"header": True, "separator": ",", "decimal": ".", "encoding": "", "columns": []}
"""Form of a data frame's file, in place of the one that a client's own files have."""


def is_mixture(run: RunModels) -> bool:
    """Return whether a client of this run predicts with several models at once."""
    return run.config.strategy.settings.mixes and len(run.models) > 1


def chosen_model(run: RunModels, folder: Path, model: int | None, client: str | None) -> tuple[Arrays, str]:
    """Return the model that is asked for by its number or by a client, and what it is called."""
    count = len(run.models)
    if model is None and client is None and count == 1:
        model = 0
    if (model is None) == (client is None):
        raise ConfigError("predict: give either model=<number>, which `florets assign` prints, or client=<key>.")
    if model is not None:
        if model not in range(count):
            raise ConfigError(f"model={model}: must be an integer from 0 to {count - 1}.")
        return run.models[model], f"model {model}"
    assert client is not None
    if client in run.own:
        return run.own[client], f"client {client}'s own model"
    if is_mixture(run):
        raise ConfigError(
            f"client={client}: a client of this run predicts with a mixture of all {count} models, and no single "
            "one is its own; `florets assign` tells the shares, and models.safetensors has the models."
        )
    found = _found_models(folder)
    if client not in found:
        raise ConfigError(
            f"client={client}: the run has no such client.{did_you_mean(client, sorted(found))} Its clients are "
            f"{listed(sorted(found), _MOST_NAMED)} ({CLIENTS})."
        )
    index = found[client]
    if index is None or index >= count:
        raise ConfigError(f"client={client}: the run gave it no model; use `florets assign` and model=<number>.")
    return run.models[index], f"model {index}"


def _found_models(folder: Path) -> dict[str, int | None]:
    """Return the model of each client, by key, as a run's ``clients.csv`` has it."""
    with reading(folder / CLIENTS, "give model=<number> in place of a client"):
        return {row.client: row.found_cluster for row in read_clients(folder)}


def read_data(
    run: RunModels, path: Path, labelled: bool, client: str | None = None, written: Mapping[str, Any] | None = None
) -> NewData:
    """Read a file or a folder of images as the run's clients read theirs, or this one; `written`: its form."""
    if run.preprocessing is None:
        if is_table(path):
            raise ValueError(f"{path}: the run was not on tables; give a NumPy archive (.npz) or a folder of images.")
        form = _form(run)
        found = read_new(path, form, labelled)
        return replace(found, x=_inputs(run, path, found.x), y=_targets(run, form, path, found.y))
    if not is_table(path):
        raise ValueError(f"{path}: the run was on tables; give one, such as .csv.")
    site = replace(_site_of(run, client), **(written or {}))
    found = read_new_table(path, declaration_of(run.config), run.preprocessing, labelled, site)
    return replace(found, x=shaped(path, found.x, run.task.input_shape))


def _site_of(run: RunModels, client: str | None) -> Site:
    """Return what a client's file says of its tables, where its data lie in the run's data folder."""
    folders: dict[str, Path] = {}
    if client is not None:
        # The data may lie elsewhere, or on nodes.
        with suppress(ConfigError):
            folders = {str(node[CLIENT_ID]): Path(node[DATA_DIR]) for node in own_nodes(run.config)}
    return read_site(folders[client]) if client in folders else Site()


def _inputs(run: RunModels, path: Path, x: NDArray[Any]) -> FloatArray:
    """Return inputs of a file (for the message) as the run's models take them."""
    return run.scale.inputs(shaped(path, x, run.task.input_shape)).astype(np.float32, copy=False)


def _targets(run: RunModels, form: Form, path: Path, y: TargetArray | None) -> TargetArray | None:
    """Return targets of a file (for the message) as the run's models are tested on them."""
    if y is None or form.regression:
        return None if y is None else run.scale.targets(y).astype(np.float32)
    if int(y.max()) >= run.task.num_outputs:
        row = int(y.argmax())
        raise ValueError(f"{path}: the label of sample {row} is none of the run's {run.task.num_outputs} classes.")
    return y


def _read_arrays(run: RunModels, x: NDArray[Any], y: NDArray[Any] | None) -> NewData:
    """Take inputs (n, ...) in memory, images with the channels first, and their targets (n,), as from an archive."""
    form, here = _form(run), Path("x")
    found = None if y is None else targets(here, y, form.classes, form.regression)
    inputs = samples(here, x, np.zeros(len(x), dtype=np.int64) if found is None else found).x
    return NewData(_inputs(run, here, inputs), _targets(run, form, here, found), numbered(len(x)))


def _form(run: RunModels) -> Form:
    """Return how data are to be read: as the run's nodes read theirs."""
    task = run.config.task
    options: dict[str, Any] = {"regression": of_values(task.loss)}
    if task.data == "own":
        options.update({key: value for key, value in task.data_options.items() if key in _FORM})
    # Names that look like numbers are names.
    options = {
        key: [str(item) for item in value] if isinstance(value, list) else value for key, value in options.items()
    }
    check_options(own, options, "data", "own")
    return Form(**options)


def _harmless(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: an apostrophe goes before what begins like one."""
    begins = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if begins and not is_number(cell) else cell


@dataclass(frozen=True)
class Predictions:
    """Predictions for n samples, each from its own sample alone.

    Attributes
    ----------
    values
        (n,): indices of classes, values of a regression in the target's unit, or an autoencoder's reconstruction
        errors; (n, C) where a model returns several values.
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
    target
        Column that a table's regression predicts; else empty.
    notes
        How a table was read, where that is not plain.
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
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype)

    @property
    def labels(self) -> NDArray[Any]:
        """The predictions (n,), values or classes, as integers or truth values where all of their names are such."""
        return _in_kind(self.classes)[self.values] if self.classes else self.values

    def frame(self) -> "pd.DataFrame":
        """Return a row for each sample: ids, prediction, its probability and that of each class, or the value."""
        return self._table(self.labels)

    def _table(self, values: NDArray[Any]) -> "pd.DataFrame":
        import pandas as pd

        named, chances = {self.what: values}, {}
        if values.ndim > 1:
            named = {f"{self.what}_{place}": column for place, column in enumerate(values.T)}
        if self.probabilities is not None:
            of_each = {f"p({name})": column for name, column in zip(self.classes, self.probabilities.T, strict=True)}
            chances = {"probability": self.probabilities.max(axis=1), **of_each}
        return pd.DataFrame({**self.ids, **named, **chances, **self.counts})

    def write(self, path: Path) -> None:
        """Write one row for each sample as CSV; raise FileExistsError where the file exists already."""
        frame = self._table(np.array(self.classes)[self.values] if self.classes else self.values)
        if "sample" not in frame:
            # A table's own column of this name says more.
            frame.insert(0, "sample", self.samples)
        frame = frame.map(_harmless).rename(columns=_harmless)
        # A name that exists already is refused by the file system itself: nothing can come in between.
        frame.to_csv(path, index=False, mode="x", lineterminator="\n", float_format="%.9g")

    def __repr__(self) -> str:
        what = f"classes {', '.join(self.classes[:10])}" if self.classes else self.target or self.what
        return f"<florets predictions for {len(self)} samples by {self.model}: {what}; .labels, .frame()>"

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())  # type: ignore[operator]  # pandas' own, which it does not declare


def predict_data(run: RunModels, state: Arrays, whose: str, new: NewData) -> Predictions:
    """Return the predictions of a model, which is called `whose`, for new inputs."""
    found = predict(run.task, state, new.x)
    what = "reconstruction_error" if run.task.spec.loss == "reconstruction" else "prediction"
    classes: tuple[str, ...] = ()
    values, target, prepared = found.values, "", run.preprocessing
    if found.probabilities is not None:
        classes = tuple(run.class_names)
    elif prepared is not None and prepared.is_regression:
        values, target = prepared.in_unit(values), prepared.target
    elif scales_targets(run.task.spec.loss):
        values = run.scale.in_unit(values)
    about_records = (new.names, new.ids, new.counts)
    return Predictions(values, whose, classes, found.probabilities, *about_records, what, target, new.notes)


def _in_kind(names: Sequence[str]) -> NDArray[Any]:
    """Return names of classes as integers or truth values where all are such, else the names themselves."""
    if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        return np.array([int(name) for name in names])
    if {name.lower() for name in names} == {"false", "true"}:
        return np.array([name.lower() == "true" for name in names])
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
        Of each model on them, (K,); empty for a mixture.
    loss, accuracy
        Of the model, or of the mixture; the accuracy is None in a task without classes.
    rmse, r2
        Of a regression, in the targets' unit; None where they are not defined.
    shares
        Share of each model, (K,), in a run whose clients mix all models; else None.
    notes
        How a table was read, where that is not plain.
    """

    model: int | None
    why: str
    num_examples: int
    losses: NDArray[np.float64]
    loss: float
    accuracy: float | None = None
    rmse: float | None = None
    r2: float | None = None
    shares: NDArray[np.float64] | None = None
    misfit: str = ""
    notes: Sequence[str] = ()


def assign_data(run: RunModels, new: NewData) -> Assignment:
    """Return which model fits data, and how well: by the run's frozen groups, the lowest loss, or as shares."""
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
        group, cosine = _nearest_group(run.frozen, run.task, run.config.train, x, y)
        if group < 0:
            misfit = f"None of the run's groups fits these data (cosine {cosine:.2f} with the nearest one's centre)."
        else:
            chosen = group
            why = f"the run's first model learns from them what that group learned (cosine {cosine:.2f})"
            training = run.frozen.training
            if training.size_of(len(x)) == 0:
                needed = training.folds * -(-training.size // 2)
                why += f", but {len(x)} samples are too few to be sure, {needed} would be enough"
    if run.frozen is not None and run.frozen.by == "descriptors":
        chosen = _nearest_descriptor(run.frozen, run.task, x, y)
        why = "of what the run's common model makes of them, that group's is the nearest"
    if len(losses) == 1:
        why = "the run has only this one"
    loss, accuracy = evaluate_model(run.task, run.models[chosen], x, y)
    rmse, r2 = _errors(run, y, loss)
    return Assignment(chosen, why, len(x), losses, loss, accuracy, rmse, r2, misfit=misfit)


def _nearest_descriptor(groups: Frozen, task: Task, x: FloatArray, y: TargetArray) -> int:
    """Return the group of a run of FLUX whose centroid is nearest to new data."""
    _, rows, dimensions = groups.centroids.shape
    found = descriptor(task, _common(groups), x, y, rows // 2 - 1, dimensions, groups.seed)
    return groups.nearest_descriptor(found)


def _nearest_group(groups: Frozen, task: Task, train: Training, x: FloatArray, y: TargetArray) -> tuple[int, float]:
    """Train the common model on data as the run's clients did; return the group (-1: none fits) and the cosine."""
    how = groups.training
    assert how is not None
    size = how.size_of(len(x))
    folds, size = (how.folds, size) if size else (1, len(x))
    training = on_folds(train, how.steps, how.rate)
    sent = (training, how.form, groups.seed, how.estimates)
    return groups.place_rows(fold_rows(task, _common(groups), x, y, folds, size, *sent))


def _common(groups: Frozen) -> Arrays:
    assert groups.models is not None
    return {name: array.numpy() for name, array in groups.models.one(0).items()}


def _errors(run: RunModels, y: TargetArray, loss: float) -> tuple[float | None, float | None]:
    """Return a regression's root mean squared error in the targets' unit, and R2 where that is defined."""
    if run.task.spec.loss not in SQUARED:
        return None, None
    mean_square = loss * (2 if run.task.spec.loss == "half_squared_error" else 1)
    spread = float(y.astype(np.float64).var())
    prepared = run.preprocessing
    scale = run.scale.target_std if prepared is None else prepared.target_std
    return mean_square**0.5 * scale, 1 - mean_square / spread if spread else None


@one_thread_within()
def predict_new(
    folder: Path, run: RunModels, x: Any, client: str | int | None = None, model: int | None = None
) -> Predictions:
    """Return predictions for new inputs; `florets.api.run.Run.predict` explains the parameters."""
    if isinstance(client, int):
        # An integer stands for a key that is padded with zeros.
        same = [key for key in _found_models(folder) if key.isdecimal() and int(key) == client]
        client = same[0] if len(same) == 1 else str(client)
    state, whose = chosen_model(run, folder, model, client)
    with _in_own_words():
        return predict_data(run, state, whose, _read(run, x, None, labelled=False, client=client))


@one_thread_within()
def assign_new(run: RunModels, x: Any, y: Any = None) -> Assignment:
    """Return which model fits new data; `florets.api.run.Run.assign` explains the parameters."""
    labelled = run.task.spec.loss != "reconstruction"
    if labelled and y is None and not (isinstance(x, str | Path) or _holds_targets(x)):
        raise ConfigError("y: give the targets too; a run places data by them.")
    with _in_own_words():
        new = _read(run, x, y, labelled)
        return replace(assign_data(run, new), notes=new.notes)


def _holds_targets(x: Any) -> bool:
    return is_frame(x) or is_torch_data(x)


def _read(run: RunModels, x: Any, y: Any, labelled: bool, client: str | None = None) -> NewData:
    in_file = isinstance(x, str | Path)
    if y is not None and (in_file or _holds_targets(x)):
        raise ConfigError("y: a data frame, data set, file or folder has the targets in it; leave y out.")
    if in_file:
        return read_data(run, Path(x).expanduser().absolute(), labelled, client)
    if is_frame(x):
        with tempfile.TemporaryDirectory() as place:
            # Read exactly as a site's file is.
            path = Path(place) / "data.csv"
            path.write_bytes(csv_of(x))
            return read_data(run, path, labelled, client, _AS_WRITTEN)
    if run.preprocessing is not None:
        raise ConfigError("x: the run was on tables; give a data frame of raw records, or a file.")
    if not labelled:
        return _read_arrays(run, inputs_of_torch(x) if is_torch_data(x) else inputs_of(x), None)
    pair = of_torch(x) if is_torch_data(x) else arrays(x, y)
    return _read_arrays(run, pair.x, pair.y)


@contextmanager
def _in_own_words() -> Iterator[None]:
    """Raise ConfigError where data cannot be used, in the words of the commands' keys and of keyword arguments."""
    try:
        yield
    except WrongData as error:
        raise ConfigError(said_of("x", error)) from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error).replace("task.data_options.", "")) from None
