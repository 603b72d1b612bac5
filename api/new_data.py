"""New data for a finished run, in memory or as files: predictions, and which model fits."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from florets.api.assignment import Assignment, assign_data, assign_unlabelled
from florets.api.client_data import WrongData, arrays, inputs_of, inputs_of_torch, is_frame, is_torch_data, of_torch
from florets.api.federation import original_labels, write_table
from florets.api.predictions import Predictions, predict_data
from florets.api.read_data import NewData, chosen_model, client_keys, read_arrays, read_data, read_table
from florets.conf.problems import ConfigError
from florets.server_app.run_models import RunModels
from florets.task.device import one_thread_within


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
        raise ConfigError(["x: the run was on tables; give a data frame of raw records, or a file."])
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
        raise ConfigError(["y: a data frame, data set, file or folder has the targets in it; leave y out."])


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
        raise ConfigError([f"x: {error}"]) from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([str(error).replace("task.data_options.", "")]) from error
