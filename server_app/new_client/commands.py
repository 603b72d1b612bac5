"""`florets assign` and `florets predict`: what a finished run's models do for a client that comes later."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from florets.conf.class_names import as_texts
from florets.conf.problems import ConfigError, did_you_mean
from florets.server_app.console import counted
from florets.server_app.new_client.mixture import assign_shares, is_mixture, refuse_one_model
from florets.server_app.new_client.run_models import Arrays, RunModels, load_run
from florets.server_app.new_client.saved_descriptors import nearest_descriptor
from florets.server_app.new_client.saved_groups import nearest_group
from florets.server_app.results.arrays_file import write_arrays
from florets.strategies.core import FloatArray
from florets.task.data.new_data import Form, read_inputs, read_labelled, shaped
from florets.task.data.own import own
from florets.task.data.standardise import standardised_alone
from florets.task.new_client import evaluate_model, model_losses, predict
from florets.task.partitions.own import OWN
from florets.task.registry import check_options

HELP = """florets assign run=<folder> data=<file or folder> [save=<file>] [unlabelled=true]
  Say which of a finished run's models fits data with their targets, and how well. CLoVE's frozen clusters, the
  groups of a discovery or those of FLUX decide where the run has them, else the lowest loss; of a run of FedEM or
  FedRC the share of each model is told. save= writes that model alone (.safetensors). unlabelled=true: the data have
  no targets; for runs of FLUX.

florets predict run=<folder> data=<file or folder> model=<number> | client=<key> [output=predictions.csv]
  Write that model's predictions for new inputs, or those of the model of one of the run's clients: its own where
  the run has personal models, else its group's.

data is a .npz archive (x, and y for assign), a .csv file with a header, or a folder of images (for assign: one folder
for each class). How to read it follows from the run where its nodes had data of their own; these keys say otherwise:
target=<column> columns=[<first>,...] classes=[<first>,...] regression=true image_size=<pixels> grayscale=true
depth=<bits>
trust=true lets a run's own model function (task.model=package.module:function) be imported."""

_FORM_KEYS = ("target", "columns", "classes", "regression", "image_size", "grayscale", "depth")
_KEYS = {
    "assign": ("run", "data", "save", "trust", "unlabelled", *_FORM_KEYS),
    "predict": ("run", "data", "model", "client", "output", "trust", *_FORM_KEYS),
}
_MOST_LISTED = 20
_MOST_CLIENTS = 5


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `assign` or `predict` and return its exit code.

    Parameters
    ----------
    arguments : sequence of str
        `key=value` texts; relative paths are meant from the working directory.

    Raises
    ------
    ConfigError
        If a key, the run's folder or the data are wrong.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    given = _read_keys(command, [text for text in arguments if text != "--debug"])
    run = load_run(_path(given["run"]), given.get("trust") == "true")
    try:
        (_assign if command == "assign" else _predict)(run, given, _form(run, given))
    except ConfigError:
        raise
    except FileExistsError as error:
        raise ConfigError([_taken(error.filename)]) from error
    except ValueError as error:
        # Readers of data and builders of models say what is wrong and what to do; here their options are keys.
        raise ConfigError([str(error).replace("task.data_options.", "")]) from error
    return 0


def _assign(run: RunModels, given: Mapping[str, str], form: Form) -> None:
    path, reconstructs = _path(given["data"]), run.task.spec.loss == "reconstruction"
    if "save" in given:
        refuse_one_model(run, f"save={given['save']}")
    save = _new_file(given["save"], ".safetensors") if "save" in given else None
    if given.get("unlabelled") == "true":
        chosen = _assign_unlabelled(run, path, form)
        _save_model(run, chosen, save)
        return
    if reconstructs:
        inputs = read_inputs(path, form).x
        targets: np.ndarray[Any, Any] = np.zeros(len(inputs), dtype=np.int64)
    else:
        found = read_labelled(path, form)
        inputs, targets = found.x, found.y
        if not form.regression and int(targets.max()) >= run.task.num_outputs:
            row = int(targets.argmax()) + 1
            raise ValueError(
                f"{path}: the label of sample {row} is none of the run's {run.task.num_outputs} classes."
            )
    x = _as_clients_have(run, shaped(path, inputs, run.task.input_shape))
    if is_mixture(run):
        assign_shares(run, x, targets)
        return
    losses = model_losses(run.task, run.models, x, targets)
    chosen, why = int(np.argmin(losses)), "its loss on these data is the lowest"
    if run.frozen is not None:
        chosen = run.nearest_frozen(model_losses(run.task, run.frozen_models(), x, targets))
        why = "its cluster's losses, saved when the run froze the clustering, are the nearest"
    if run.groups is not None:
        group, cosine = nearest_group(run.groups, run.task, x, targets)
        if group < 0:
            print(f"None of the run's groups fits these data (cosine {cosine:.2f} with the nearest one's centre).")
        else:
            chosen, why = (
                group,
                f"the run's first model learns from them what that group learned (cosine {cosine:.2f})",
            )
            if run.groups.folds_of(len(x)) == 1:
                needed = run.groups.folds * run.groups.size
                why += f", but {len(x)} samples are too few to be sure, {needed} would be enough"
    if run.descriptors is not None:
        chosen = nearest_descriptor(run.descriptors, run.task, x, targets)
        why = "of what the run's common model makes of them, that group's is the nearest"
    if len(losses) == 1:
        why = "the run has only this one"
    print(f"Model {chosen} fits best: {why}.")
    _list_losses(losses, chosen)
    loss, accuracy = evaluate_model(run.task, run.models[chosen], x, targets)
    print(
        f"On {counted(len(x), 'sample')}: "
        + ("" if accuracy is None else f"accuracy {accuracy:.1%}, ")
        + f"loss {loss:.4g}"
    )
    if run.config.strategy.settings.adapts:
        print(
            "These figures are of the model as it was sent: each client of the run adapts it by a gradient step on "
            "its own training data before it uses it."
        )
    if client := _trained_on(path, run, _path(given["run"])):
        print(f"Client {client} took part in this run: the figures include data that the models were trained on.")
    _save_model(run, chosen, save)


def _assign_unlabelled(run: RunModels, path: Path, form: Form) -> int:
    """Say which model fits inputs without targets, and return its index."""
    if run.descriptors is None:
        raise ConfigError(
            ["unlabelled=true: this run places data by their targets, too; a run of strategy=flux needs none."]
        )
    x = _as_clients_have(run, shaped(path, read_inputs(path, form).x, run.task.input_shape))
    chosen = nearest_descriptor(run.descriptors, run.task, x, None)
    print(
        f"Model {chosen} fits best: of what the run's common model makes of the inputs, that group's is the nearest."
    )
    return chosen


def _save_model(run: RunModels, chosen: int, save: Path | None) -> None:
    if save is not None:
        # As for predictions, the file system itself refuses a name that is there already.
        with save.open("xb") as file:
            names = {"columns": json.dumps(list(run.columns), ensure_ascii=False)} if run.columns else None
            write_arrays(file, run.models[chosen], names)
        print(f"Model: {save}")


def _as_clients_have(run: RunModels, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return new inputs on the scale that the run's clients have put theirs on."""
    task = run.config.task
    return standardised_alone(x) if task.data == OWN and task.data_options.get("standardise") is True else x


def _trained_on(data: Path, run: RunModels, folder: Path) -> str | None:
    """Return the client of the run that trained on these data, as far as their path tells; else None.

    It does where nodes have data of their own: their folders are named after them, and hold ``train`` or, undivided,
    ``data``.
    """
    data = data.resolve()
    if run.config.task.partition != OWN or data.stem not in ("train", "data"):
        return None
    client, clients = data.parent.name, folder / "clients.csv"
    # A folder that was copied may hold the models alone.
    return client if clients.is_file() and client in _found_models(clients) else None


def _list_losses(losses: FloatArray, chosen: int) -> None:
    order = np.argsort(losses, kind="stable")[:_MOST_LISTED]
    print("  model  loss")
    for index in sorted({*order.tolist(), chosen}):
        print(f"{'>' if index == chosen else ' '} {index:5d}  {losses[index]:.4g}")
    if len(losses) > len(order):
        print(f"  ({len(losses)} models; those with the lowest losses are listed)")


def _predict(run: RunModels, given: Mapping[str, str], form: Form) -> None:
    state, whose = _chosen_model(run, given)
    target = _new_file(given.get("output", "predictions.csv"), ".csv")
    path = _path(given["data"])
    inputs = read_inputs(path, form)
    x = _as_clients_have(run, shaped(path, inputs.x, run.task.input_shape))
    found = predict(run.task, state, x)
    last = [] if found.probabilities is None else ["probability"]
    what = "reconstruction_error" if run.task.spec.loss == "reconstruction" else "prediction"
    names = form.classes if found.probabilities is not None else None
    # A name that is there already is refused by the file system itself: nothing can come in between.
    with target.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sample", what, *last])
        for row, value in enumerate(found.values.tolist()):
            shown = names[value] if names and value < len(names) else value
            probability = [] if found.probabilities is None else [f"{found.probabilities[row]:.6g}"]
            writer.writerow([inputs.names[row], shown, *probability])
    print(f"{counted(len(inputs.names), 'prediction')} of {whose}: {target}")


def _chosen_model(run: RunModels, given: Mapping[str, str]) -> tuple[Arrays, str]:
    """Return the model that is asked for, and what it is called."""
    if given.get("client") in run.own and "model" not in given:
        return run.own[given["client"]], f"client {given['client']}'s own model"
    index = _chosen_index(run, given)
    return run.models[index], f"model {index}"


def _chosen_index(run: RunModels, given: Mapping[str, str]) -> int:
    count = len(run.models)
    if ("model" in given) == ("client" in given):
        if count == 1 and "model" not in given:
            return 0
        raise ConfigError(["predict: give either model=<number>, which `florets assign` tells, or client=<key>."])
    if "model" in given:
        text = given["model"]
        if not text.isdecimal() or int(text) >= count:
            raise ConfigError([f"model={text}: must be an integer from 0 to {count - 1}."])
        return int(text)
    refuse_one_model(run, f"client={given['client']}")
    return _model_of(_path(given["run"]) / "clients.csv", given["client"], count)


def _found_models(path: Path) -> dict[str, str | None]:
    """Return the model of each client, by key, as a run's ``clients.csv`` has it; a row that was cut off has none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {row["client"]: row["found_cluster"] for row in csv.DictReader(file)}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise ConfigError(
            [f"{path} cannot be read ({error}); `florets predict` needs model=<number> then."]
        ) from error


def _model_of(path: Path, client: str, count: int) -> int:
    found = _found_models(path)
    if client not in found:
        raise ConfigError([f"client={client}: the run has no such client.{_known_clients(client, sorted(found))}"])
    text = found[client] or ""
    if not text.isdecimal() or int(text) >= count:
        raise ConfigError([f"client={client}: the run gave it no model; use `florets assign` and model=<number>."])
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
        hint, listed = did_you_mean(client, keys), ", ".join(keys[:_MOST_CLIENTS])
        listed += f" and {len(keys) - _MOST_CLIENTS} more" if len(keys) > _MOST_CLIENTS else ""
    return f"{hint} Its clients are {listed} (clients.csv)."


def _read_keys(command: str, arguments: Sequence[str]) -> dict[str, str]:
    known, problems = _KEYS[command], []
    given: dict[str, str] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if key not in known:
            problems.append(f"{text}: florets {command} has no such key.{did_you_mean(key, known)}")
        elif not equals or not value:
            problems.append(f"{text}: needs a value, {key}=<value>.")
        elif given.setdefault(key, value) != value:
            problems.append(f"{key}: given twice with two values; keep one.")
    problems += [
        f"{key}={given[key]}: must be true or false."
        for key in ("trust", "unlabelled")
        if given.get(key, "true") not in ("true", "false")
    ]
    problems += [
        f"{key} is missing: florets {command} needs {key}=<path>." for key in ("run", "data") if key not in given
    ]
    if problems:
        raise ConfigError(problems)
    return given


def _form(run: RunModels, given: Mapping[str, str]) -> Form:
    """Return how data are to be read: as the run's nodes read theirs, but for what is given by hand."""
    task = run.config.task
    options: dict[str, Any] = {"regression": "squared_error" in task.loss}
    if task.data == "own":
        options.update({key: value for key, value in task.data_options.items() if key in _FORM_KEYS})
    for key in _FORM_KEYS:
        if key in given:
            try:
                # Names are texts, whatever they look like.
                read = as_texts if key in ("classes", "columns") else yaml.safe_load
                value = given[key] if key == "target" else read(given[key])
            except yaml.YAMLError as error:
                raise ConfigError([f"{key}={given[key]}: cannot be read; a list is [<first>,<second>]."]) from error
            options[key] = value
    if run.columns and "columns" not in given:
        # Whatever order the run's clients had them in: the models know the inputs by these names.
        options["columns"] = list(run.columns)
    # Names that look like numbers are names.
    options = {
        key: [str(item) for item in value] if isinstance(value, list) else value for key, value in options.items()
    }
    check_options(own, options, "data", "own")
    return Form(**options)


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _new_file(text: str, suffix: str) -> Path:
    """Return the path of a file that is to be written; never one that is there."""
    path = _path(text)
    if path.suffix != suffix:
        raise ConfigError([f"{text}: must end in {suffix}."])
    if path.exists() or path.is_symlink():
        raise ConfigError([_taken(path)])
    if not path.parent.is_dir():
        raise ConfigError([f"{path}: the folder {path.parent} does not exist."])
    return path


def _taken(path: Path | str) -> str:
    return f"{path} is there already and is not overwritten; name another file, or remove it."
