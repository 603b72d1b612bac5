"""New data for a finished run, as its models take them: from files, or in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from florets.api.chosen_model import check_client
from florets.conf.problems import ConfigError
from florets.reports.console import counted
from florets.server_app.data_agreement import declaration_of
from florets.server_app.run_models import RunModels
from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.data.new_data import Form, read_inputs, read_labelled, read_new_table, shaped
from florets.task.data.own import own
from florets.task.data.samples import samples, targets
from florets.task.data.tables.declaration import is_table
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.registry import check_options

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
    """Read the data that a command names.

    Raises
    ------
    ConfigError
        If a key does not suit the data.
    ValueError
        If the data cannot be read, or do not fit the run's models.
    """
    path = Path(given["data"]).expanduser().absolute()
    if path.is_file() and is_table(path):
        if wrong := [key for key in FORM_KEYS if key in given]:
            raise ConfigError(
                [f"{wrong[0]}={given[wrong[0]]}: the run's preprocessing.json says that of tables; leave it out."]
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
    """Take inputs (n, ...) in memory, images with the channels first, and their targets (n,), as from an archive.

    Raises
    ------
    ValueError
        If they do not fit the run's models.
    """
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
                raise ConfigError([f"{key}={given[key]}: cannot be read; a list is [<first>,<second>]."]) from error
            options[key] = value
    # Names that look like numbers are names.
    options = {
        key: [str(item) for item in value] if isinstance(value, list) else value for key, value in options.items()
    }
    check_options(own, options, "data", "own")
    return Form(**options)
