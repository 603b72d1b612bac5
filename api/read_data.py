"""New data for a finished run, as its models take them: from files, or in memory."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.console import counted
from florets.server_app.data_agreement import declaration_of
from florets.server_app.run_models import Arrays, RunModels
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.data.new_data import Form, read_inputs, read_labelled, read_new_table, shaped
from florets.task.data.own import own
from florets.task.data.samples import samples, targets
from florets.task.data.tables.declaration import is_table
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.partitions.own import OWN
from florets.task.registry import check_options


def is_mixture(run: RunModels) -> bool:
    """Return whether a client of this run predicts with several models at once."""
    return run.config.strategy.settings.mixes and len(run.models) > 1


def refuse_one_model(run: RunModels, key: str) -> None:
    """Refuse a key that asks for a client's one model where it has a mixture."""
    if is_mixture(run):
        raise ConfigError(
            f"{key}: a client of this run predicts with a mixture of all {len(run.models)} models, and no single "
            "one is its own; `florets assign` tells the shares, and models.safetensors has the models."
        )


_CLIENTS = "clients.csv"


_MOST_NAMED = 5


def chosen_model(run: RunModels, folder: Path, given: Mapping[str, str]) -> tuple[Arrays, str]:
    """Return the model that the keys ``model`` or ``client`` ask for, and what it is called."""
    if given.get("client") in run.own and "model" not in given:
        return run.own[given["client"]], f"client {given['client']}'s own model"
    index = _chosen_index(run, folder, given)
    return run.models[index], f"model {index}"


def _chosen_index(run: RunModels, folder: Path, given: Mapping[str, str]) -> int:
    count = len(run.models)
    if ("model" in given) == ("client" in given):
        if count == 1 and "model" not in given:
            return 0
        raise ConfigError("predict: give either model=<number>, which `florets assign` prints, or client=<key>.")
    if "model" in given:
        text = given["model"]
        if not text.isdecimal() or int(text) >= count:
            raise ConfigError(f"model={text}: must be an integer from 0 to {count - 1}.")
        return int(text)
    refuse_one_model(run, f"client={given['client']}")
    return _model_of(folder / _CLIENTS, given["client"], count)


def check_client(folder: Path, client: str) -> None:
    """Raise ConfigError if the run has no such client."""
    found = _found_models(folder / _CLIENTS)
    if client not in found:
        raise ConfigError(f"client={client}: the run has no such client.{_known_clients(client, sorted(found))}")


def client_keys(folder: Path) -> list[str]:
    """Return the keys of a run's clients, sorted."""
    return sorted(_found_models(folder / _CLIENTS))


def trained_on(data: Path, run: RunModels, folder: Path) -> str | None:
    """Return the client of the run that trained on these data, as far as their path tells; else None.

    It does where nodes have data of their own: their folders are named after them, and the tables that lie in the
    run's `data_dir` itself.
    """
    data, clients = data.resolve(), folder / _CLIENTS
    # A folder that was copied may hold the models alone.
    if run.config.task.partition != OWN or not clients.is_file():
        return None
    stem, known = data.name.partition(".")[0], _found_models(clients)
    if data.parent.name in known and (stem in ("train", "data") or (is_table(data) and stem != "test")):
        return data.parent.name
    beside = data.parent == Path(run.config.data_dir).expanduser().resolve()
    return stem if beside and is_table(data) and stem in known else None


def _found_models(path: Path) -> dict[str, str | None]:
    """Return the model of each client, by key, as a run's ``clients.csv`` has it; a row that was cut off has none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {row["client"]: row["found_cluster"] for row in csv.DictReader(file)}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); `florets predict` needs model=<number> then.") from error


def _model_of(path: Path, client: str, count: int) -> int:
    check_client(path.parent, client)
    text = _found_models(path)[client] or ""
    if not text.isdecimal() or int(text) >= count:
        raise ConfigError(f"client={client}: the run gave it no model; use `florets assign` and model=<number>.")
    return int(text)


def _known_clients(client: str, keys: Sequence[str]) -> str:
    """Return which clients there are, and the one that was meant where that is plain."""
    if not keys:
        return " clients.csv names none; use model=<number>."
    if all(key.isdecimal() for key in keys):
        # Of numbers the one that looks most alike is another client; the padded one is the same.
        padded = client.zfill(len(keys[0]))
        hint, listed = f" Did you mean {padded}?" if padded in keys else "", f"{keys[0]} to {keys[-1]}"
    else:
        hint, listed = did_you_mean(client, keys), ", ".join(keys[:_MOST_NAMED])
        listed += f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return f"{hint} Its clients are {listed} (clients.csv)."


FORM_KEYS = ("classes", "image_size", "grayscale", "depth")
"""Keys of the commands that say how archives and images are read."""


@dataclass(frozen=True)
class NewData:
    """Samples as the run's models take them.

    Parameters
    ----------
    names
        What each sample is called: the image's file, or its number from 1.
    y
        Targets (n,), None where they were not asked for.
    classes
        Names of the classes as far as there are any.
    ids, counts
        Of a table: the columns that name a record, and how many values of each are missing or unknown.
    preprocessing
        How a table was prepared; None: the data are no table.
    notes
        How a table was read, where that is not plain.
    """

    x: FloatArray
    names: Sequence[str]
    y: TargetArray | None = None
    classes: Sequence[str] = ()
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    preprocessing: Preprocessing | None = None
    notes: Sequence[str] = ()


def read_data(run: RunModels, folder: Path, given: Mapping[str, str], labelled: bool) -> NewData:
    """Read the data that a command names."""
    path = Path(given["data"]).expanduser().absolute()
    if path.is_file() and is_table(path):
        if wrong := [key for key in FORM_KEYS if key in given]:
            raise ConfigError(
                f"{wrong[0]}={given[wrong[0]]}: the run's preprocessing.json says that of tables; leave it out."
            )
        return read_table(run, folder, path, given.get("client"), labelled)
    form = _form(run, given)
    if labelled:
        found = read_labelled(path, form)
        _check_labels(run, form, path, found.y)
        return NewData(shaped(path, found.x, run.task.input_shape), (), found.y)
    inputs = read_inputs(path, form)
    return NewData(shaped(path, inputs.x, run.task.input_shape), inputs.names, classes=form.classes or ())


def read_table(run: RunModels, folder: Path, path: Path, site: str | None, labelled: bool) -> NewData:
    """Read a table; `site` is the client of the run whose records they are, if they are one's; see `read_data`."""
    preprocessing = run.preprocessing
    if preprocessing is None:
        raise ValueError(
            f"{path}: the run has no preprocessing.json, which says how a table becomes inputs, since its clients "
            "had none: give a NumPy archive (.npz)."
        )
    if site is not None and site not in preprocessing.sites:
        check_client(folder, site)
    found = read_new_table(path, declaration_of(run.config), preprocessing, site, labelled)
    notes = [*found.notes]
    if found.untargeted:
        notes.append(f"{counted(found.untargeted, 'record')} without a target left out")
    x = shaped(path, found.prepared.x, run.task.input_shape)
    counts = {"missing": found.prepared.missing, "unknown": found.prepared.unknown}
    names = [str(number + 1) for number in range(len(x))]
    return NewData(x, names, found.y, tuple(preprocessing.classes), found.ids, counts, preprocessing, notes)


def read_arrays(run: RunModels, x: NDArray[Any], y: NDArray[Any] | None) -> NewData:
    """Take inputs (n, ...) in memory, images with the channels first, and their targets (n,), as from an archive."""
    form = _form(run, {})
    here = Path("x")
    found = None if y is None else targets(here, y, form.classes, form.regression)
    inputs = samples(here, x, np.zeros(len(x), dtype=np.int64) if found is None else found).x
    if found is not None:
        _check_labels(run, form, here, found)
    names = [str(number + 1) for number in range(len(x))]
    return NewData(shaped(here, inputs, run.task.input_shape), names, found, form.classes or ())


def _check_labels(run: RunModels, form: Form, path: Path, y: TargetArray) -> None:
    if not form.regression and int(y.max()) >= run.task.num_outputs:
        row = int(y.argmax())
        raise ValueError(f"{path}: the label of sample {row} is none of the run's {run.task.num_outputs} classes.")


def _form(run: RunModels, given: Mapping[str, str]) -> Form:
    """Return how data are to be read: as the run's nodes read theirs, but for what is given by hand."""
    task = run.config.task
    options: dict[str, Any] = {"regression": "squared_error" in task.loss}
    if task.data == "own":
        options.update({key: value for key, value in task.data_options.items() if key in FORM_KEYS})
    for key in FORM_KEYS:
        if key in given:
            try:
                # Names are texts, whatever they look like.
                value = yaml.load(given[key], yaml.BaseLoader if key == "classes" else yaml.SafeLoader)
            except yaml.YAMLError as error:
                raise ConfigError(f"{key}={given[key]}: cannot be read; a list is [<first>,<second>].") from error
            options[key] = value
    # Names that look like numbers are names.
    options = {
        key: [str(item) for item in value] if isinstance(value, list) else value for key, value in options.items()
    }
    check_options(own, options, "data", "own")
    return Form(**options)
