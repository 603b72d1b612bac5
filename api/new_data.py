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
from florets.api.federation import write_table
from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.clients import CLIENTS, read_clients
from florets.server_app.data_agreement import declaration_of
from florets.server_app.run_models import Arrays, RunModels
from florets.server_app.saved_groups import nearest_descriptor, nearest_group
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.data.new_data import (
    Form,
    NewData,
    numbered,
    read_inputs,
    read_labelled,
    read_new_table,
    refuse_whole_node,
    shaped,
)
from florets.task.data.own import own
from florets.task.data.samples import samples, targets
from florets.task.data.tables.declaration import is_table
from florets.task.device import one_thread_within
from florets.task.new_client import evaluate_model, evaluate_models, fitted_shares, model_losses, predict
from florets.task.registry import check_options
from florets.task.settings import SQUARED, of_values, scales_targets

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 5
_FORM = ("classes", "image_size", "grayscale")
"""Options by which the run's own data were read, and new ones are."""
MOST_CLASSES = 50
"""Classes up to which the probability of each has a column."""


def is_mixture(run: RunModels) -> bool:
    """Return whether a client of this run predicts with several models at once."""
    return run.config.strategy.settings.mixes and len(run.models) > 1


def chosen_model(run: RunModels, folder: Path, model: int | None, client: str | None) -> tuple[Arrays, str]:
    """Return the model that is asked for by its number or by a client, and what it is called."""
    if client is not None and client in run.own and model is None:
        return run.own[client], f"client {client}'s own model"
    index = _chosen_index(run, folder, model, client)
    return run.models[index], f"model {index}"


def _chosen_index(run: RunModels, folder: Path, model: int | None, client: str | None) -> int:
    count = len(run.models)
    if model is None and client is None and count == 1:
        return 0
    if model is not None and client is None:
        if model not in range(count):
            raise ConfigError(f"model={model}: must be an integer from 0 to {count - 1}.")
        return model
    if model is not None or client is None:
        raise ConfigError("predict: give either model=<number>, which `florets assign` prints, or client=<key>.")
    if is_mixture(run):
        raise ConfigError(
            f"client={client}: a client of this run predicts with a mixture of all {count} models, and no single "
            "one is its own; `florets assign` tells the shares, and models.safetensors has the models."
        )
    return _model_of(folder, client, count)


def _found_model(folder: Path, client: str) -> int | None:
    """Return the model of a client, as ``clients.csv`` has it; raise ConfigError if the run has no such client."""
    found = _found_models(folder)
    if client not in found:
        raise ConfigError(f"client={client}: the run has no such client.{_known_clients(client, sorted(found))}")
    return found[client]


def _found_models(folder: Path) -> dict[str, int | None]:
    """Return the model of each client, by key, as a run's ``clients.csv`` has it."""
    try:
        return {row.client: row.found_cluster for row in read_clients(folder)}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder / CLIENTS} cannot be read ({error}); `florets predict` needs model=<number> then."
        ) from None


def _model_of(folder: Path, client: str, count: int) -> int:
    model = _found_model(folder, client)
    if model is None or model >= count:
        raise ConfigError(f"client={client}: the run gave it no model; use `florets assign` and model=<number>.")
    return model


def _known_clients(client: str, keys: Sequence[str]) -> str:
    """Return which clients there are, and the one that was meant where that is plain."""
    if not keys:
        return " clients.csv names none; use model=<number>."
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return f"{did_you_mean(client, keys)} Its clients are {', '.join(keys[:_MOST_NAMED])}{more} (clients.csv)."


def read_data(run: RunModels, path: Path, labelled: bool) -> NewData:
    """Read a file, or a folder of images."""
    if run.preprocessing is not None or is_table(path):
        return _read_table(run, path, labelled)
    form = _form(run)
    if labelled:
        found = read_labelled(path, form)
        _check_labels(run, form, path, found.y)
        return NewData(_inputs(run, path, found.x), (), _targets(run, form, found.y))
    inputs = read_inputs(path, form)
    return replace(inputs, x=_inputs(run, path, inputs.x))


def _inputs(run: RunModels, path: Path, x: NDArray[Any]) -> FloatArray:
    """Return inputs of a file (for the message) as the run's models take them."""
    return run.scale.inputs(shaped(path, x, run.task.input_shape)).astype(np.float32, copy=False)


def _targets(run: RunModels, form: Form, y: TargetArray) -> TargetArray:
    return run.scale.targets(y).astype(np.float32) if form.regression else y


def _read_table(run: RunModels, path: Path, labelled: bool) -> NewData:
    preprocessing = run.preprocessing
    if preprocessing is None:
        raise ValueError(
            f"{path}: the run has no preprocessing.json, which says how a table becomes inputs, since its clients "
            "had none: give a NumPy archive (.npz)."
        )
    if not is_table(path):
        if path.is_dir():
            refuse_whole_node(path)
        raise ValueError(f"{path}: the run was on tables; give one, such as .csv.")
    found = read_new_table(path, declaration_of(run.config), preprocessing, labelled)
    return replace(found, x=shaped(path, found.x, run.task.input_shape))


def _read_arrays(run: RunModels, x: NDArray[Any], y: NDArray[Any] | None) -> NewData:
    """Take inputs (n, ...) in memory, images with the channels first, and their targets (n,), as from an archive."""
    form = _form(run)
    here = Path("x")
    found = None if y is None else targets(here, y, form.classes, form.regression)
    inputs = samples(here, x, np.zeros(len(x), dtype=np.int64) if found is None else found).x
    if found is not None:
        _check_labels(run, form, here, found)
        found = _targets(run, form, found)
    return NewData(_inputs(run, here, inputs), numbered(len(x)), found)


def _check_labels(run: RunModels, form: Form, path: Path, y: TargetArray) -> None:
    if not form.regression and int(y.max()) >= run.task.num_outputs:
        row = int(y.argmax())
        raise ValueError(f"{path}: the label of sample {row} is none of the run's {run.task.num_outputs} classes.")


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

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype)

    @property
    def labels(self) -> NDArray[Any]:
        """The predictions (n,): classes or values.

        Classes are integers or truth values where all of their names are such, else names.
        """
        return _in_kind(self.classes)[self.values] if self.classes else self.values

    def frame(self) -> "pd.DataFrame":
        """Return a row for each sample: ids, prediction, its probability and that of each class, or the value."""
        import pandas as pd

        chances = self._chances(len(self.classes))
        return pd.DataFrame({**self.ids, **self._named(self.labels), **chances, **self.counts})

    def _named(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return predictions by the names of their columns."""
        if values.ndim == 1:
            return {self.what: values}
        return {f"{self.what}_{place}": column for place, column in enumerate(values.T)}

    def _chances(self, most: int) -> dict[str, NDArray[np.float64]]:
        """Return the columns of the prediction's probability and, of at most so many classes, that of each class."""
        if self.probabilities is None:
            return {}
        pairs = zip(self.classes, self.probabilities.T, strict=True) if len(self.classes) <= most else ()
        return {"probability": self.probabilities.max(axis=1), **{f"p({name})": chances for name, chances in pairs}}

    def write(self, path: Path) -> None:
        """Write one row for each sample as CSV; raise FileExistsError where the file exists already."""
        columns: dict[str, Sequence[str]] = {"sample": self.samples, **self.ids}
        for name, values in self._named(self.values).items():
            columns[name] = [self.classes[one] if self.classes else f"{one:.9g}" for one in values.tolist()]
        for name, chances in self._chances(MOST_CLASSES).items():
            columns[name] = [f"{value:.6g}" for value in chances]
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
    return Predictions(values, whose, classes, found.probabilities, new.names, new.ids, new.counts, what, target)


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
        Of each model on them, (K,); empty where there were no targets.
    loss, accuracy
        Of the model, or of the mixture; NaN without targets, and None in a task without classes.
    rmse, r2
        Of a regression, in the targets' unit; None where they are not defined.
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
            if training.size_of(len(x)) == 0:
                needed = training.folds * -(-training.size // 2)
                why += f", but {len(x)} samples are too few to be sure, {needed} would be enough"
    if run.frozen is not None and run.frozen.by == "descriptors":
        chosen = nearest_descriptor(run.frozen, run.task, x, y)
        why = "of what the run's common model makes of them, that group's is the nearest"
    if len(losses) == 1:
        why = "the run has only this one"
    loss, accuracy = evaluate_model(run.task, run.models[chosen], x, y)
    rmse, r2 = _errors(run, new, loss)
    return Assignment(chosen, why, len(x), losses, loss, accuracy, rmse, r2, misfit=misfit)


def assign_unlabelled(run: RunModels, new: NewData) -> Assignment:
    """Return which model fits inputs without targets."""
    if run.frozen is None or run.frozen.by != "descriptors":
        raise ConfigError(
            "unlabelled=true, or no y: this run places data by their targets, too; one of strategy=flux needs none."
        )
    chosen = nearest_descriptor(run.frozen, run.task, new.x, None)
    why = "of what the run's common model makes of the inputs, that group's is the nearest"
    return Assignment(chosen, why, len(new.x), np.empty(0))


def _errors(run: RunModels, new: NewData, loss: float) -> tuple[float | None, float | None]:
    """Return a regression's root mean squared error in the targets' unit, and R2 where that is defined."""
    if run.task.spec.loss not in SQUARED or new.y is None:
        return None, None
    mean_square = loss * (2 if run.task.spec.loss == "half_squared_error" else 1)
    spread = float(new.y.astype(np.float64).var())
    prepared = run.preprocessing
    scale = run.scale.target_std if prepared is None else prepared.target_std
    return mean_square**0.5 * scale, 1 - mean_square / spread if spread else None


@one_thread_within()
def predict_new(
    folder: Path, run: RunModels, x: Any, client: str | int | None = None, model: int | None = None
) -> Predictions:
    """Return predictions for new inputs; `florets.api.run.Run.predict` explains the parameters."""
    key = None if client is None else _key(folder, client)
    state, whose = chosen_model(run, folder, model, key)
    with _in_own_words():
        return predict_data(run, state, whose, _read(run, x, None, labelled=False))


@one_thread_within()
def assign_new(run: RunModels, x: Any, y: Any = None) -> Assignment:
    """Return which model fits new data; `florets.api.run.Run.assign` explains the parameters."""
    has_targets = run.task.spec.loss != "reconstruction"
    in_file = isinstance(x, str | Path) or is_frame(x) or is_torch_data(x)
    with _in_own_words():
        if y is None and has_targets and (not in_file or run.frozen_by == "descriptors"):
            return assign_unlabelled(run, _read(run, x, None, labelled=False))
        return assign_data(run, _read(run, x, y, labelled=has_targets))


def _read(run: RunModels, x: Any, y: Any, labelled: bool) -> NewData:
    if isinstance(x, str | Path):
        _refuse_targets(y)
        return read_data(run, Path(x).expanduser().absolute(), labelled)
    if is_frame(x):
        _refuse_targets(y)
        with tempfile.TemporaryDirectory() as place:
            # Read exactly as a site's file is.
            return _read_table(run, write_table(x, Path(place)), labelled)
    if run.preprocessing is not None:
        raise ConfigError("x: the run was on tables; give a data frame of raw records, or a file.")
    if is_torch_data(x):
        _refuse_targets(y)
        if not labelled:
            return _read_arrays(run, inputs_of_torch(x), None)
        samples = of_torch(x)
        return _read_arrays(run, samples.x, samples.y)
    if not labelled or y is None:
        return _read_arrays(run, inputs_of(x), None)
    found = arrays(x, y)
    return _read_arrays(run, found.x, found.y)


def _refuse_targets(y: Any) -> None:
    if y is not None:
        raise ConfigError("y: a data frame, data set, file or folder has the targets in it; leave y out.")


def _key(folder: Path, client: str | int) -> str:
    """Return a client's key; an integer stands for one that is padded with zeros."""
    if isinstance(client, str):
        return client
    same = [key for key in _found_models(folder) if key.isdecimal() and int(key) == client]
    return same[0] if len(same) == 1 else str(client)


@contextmanager
def _in_own_words() -> Iterator[None]:
    """Raise ConfigError where data cannot be used, in the words of keyword arguments."""
    try:
        yield
    except WrongData as error:
        raise ConfigError(f"x: {error}") from None
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error).replace("task.data_options.", "")) from None
