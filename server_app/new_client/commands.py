"""`florets assign` and `florets predict`: what a finished run's models do for a client that comes later."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.conf.problems import ConfigError, did_you_mean
from florets.server_app.console import counted
from florets.server_app.new_client.chosen_model import chosen_model, trained_on
from florets.server_app.new_client.mixture import assign_shares, is_mixture, refuse_one_model
from florets.server_app.new_client.predictions_file import MOST_CLASSES, Sheet
from florets.server_app.new_client.read_data import FORM_KEYS, NewData, read_data
from florets.server_app.new_client.run_models import RunModels, load_run
from florets.server_app.new_client.saved_descriptors import nearest_descriptor
from florets.server_app.new_client.saved_groups import nearest_group
from florets.server_app.results.arrays_file import write_arrays
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.new_client import evaluate_model, model_losses, predict

HELP = """florets assign run=<folder> data=<file or folder> [save=<file>] [client=<key>] [unlabelled=true]
  Say which of a finished run's models fits data with their targets, and how well. CLoVE's frozen clusters, the
  groups of a discovery or those of FLUX decide where the run has them, else the lowest loss; of a run of FedEM or
  FedRC the share of each model is told. save= writes that model alone (.safetensors), and for tables next to it how
  they become its inputs (.preprocessing.json). unlabelled=true: the data have no targets; for runs of FLUX.

florets predict run=<folder> data=<file or folder> model=<number> | client=<key> [output=predictions.csv]
  Write that model's predictions for new inputs, or those of the model of one of the run's clients: its own where
  the run has personal models, else its group's. A row has the record's ids, the class with its probability and that
  of each class, or the value in its unit, and how many cells were missing or of an unknown category.

data is a table as the sites have it (.csv, .tsv, ..., one record is enough; for assign with the target), a .npz
archive (x, and y for assign), or a folder of images (for assign: one folder for each class). The run says how it is
read. Where a table has other names, units or missing marks, node.toml in its folder, or <name>.toml next to
<name>.csv, says so: rename, scale, missing, drop. In a run with task.table.standardise=site client=<key> also says
whose scale holds; a new site with 30 records or more has its own. Of archives and images these keys say otherwise:
classes=[<first>,...] image_size=<pixels> grayscale=true depth=<bits>
trust=true lets a run's own model function (task.model=package.module:function) be imported."""

_KEYS = {
    "assign": ("run", "data", "client", "save", "trust", "unlabelled", *FORM_KEYS),
    "predict": ("run", "data", "model", "client", "output", "trust", *FORM_KEYS),
}
_MOST_LISTED = 20


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
        (_assign if command == "assign" else _predict)(run, given)
    except ConfigError:
        raise
    except FileExistsError as error:
        raise ConfigError([_taken(error.filename)]) from error
    except ValueError as error:
        # Readers of data and builders of models say what is wrong and what to do; here their options are keys.
        raise ConfigError([str(error).replace("task.data_options.", "")]) from error
    return 0


def _assign(run: RunModels, given: Mapping[str, str]) -> None:
    if "save" in given:
        refuse_one_model(run, f"save={given['save']}")
    save = _new_file(given["save"], ".safetensors") if "save" in given else None
    if save is not None and run.preprocessing is not None:
        _new_file(str(_beside(save)), ".json")
    if given.get("unlabelled") == "true":
        chosen = _assign_unlabelled(run, given)
        _save_model(run, chosen, save)
        return
    # An autoencoder's targets are its inputs.
    new = read_data(run, _path(given["run"]), given, labelled=run.task.spec.loss != "reconstruction")
    if "client" in given and new.preprocessing is None:
        raise ConfigError([f"client={given['client']}: says whose scale a table has, and these data are none."])
    x, targets = new.x, np.zeros(len(new.x), dtype=np.int64) if new.y is None else new.y
    if is_mixture(run):
        assign_shares(run, x, targets)
        return
    losses = model_losses(run.task, run.models, x, targets)
    chosen, why = int(np.argmin(losses)), "its loss on these data is the lowest"
    if run.frozen is not None:
        chosen = run.nearest_frozen(model_losses(run.task, run.frozen_models(), x, targets))
        why = "its cluster's losses, saved when the run froze the clustering, are the nearest"
    if run.groups is not None:
        group, cosine = nearest_group(run.groups, run.task, run.config.train, x, targets)
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
        + _errors(run, new, loss)
        + f"loss {loss:.4g}"
    )
    if run.config.strategy.settings.adapts:
        print(
            "These figures are of the model as it was sent: each client of the run adapts it by a gradient step on "
            "its own training data before it uses it."
        )
    if client := trained_on(_path(given["data"]), run, _path(given["run"])):
        print(f"Client {client} took part in this run: the figures include data that the models were trained on.")
    _save_model(run, chosen, save)


def _errors(run: RunModels, new: NewData, loss: float) -> str:
    """Return a regression's root mean squared error in the targets' unit, and its R2 where that is defined."""
    if "squared_error" not in run.task.spec.loss or new.y is None:
        return ""
    mean_square = loss * (2 if run.task.spec.loss == "half_squared_error" else 1)
    spread = float(new.y.astype(np.float64).var())
    scale = 1.0 if new.preprocessing is None else new.preprocessing.target_std
    unit = "" if new.preprocessing is None else new.preprocessing.units.get(new.preprocessing.target, "")
    return f"RMSE {mean_square**0.5 * scale:.4g}{unit and f' {unit}'}, " + (
        f"R2 {1 - mean_square / spread:.3f}, " if spread else ""
    )


def _assign_unlabelled(run: RunModels, given: Mapping[str, str]) -> int:
    """Say which model fits inputs without targets, and return its index."""
    if run.descriptors is None:
        raise ConfigError(
            ["unlabelled=true: this run places data by their targets, too; a run of strategy=flux needs none."]
        )
    chosen = nearest_descriptor(
        run.descriptors, run.task, read_data(run, _path(given["run"]), given, labelled=False).x, None
    )
    print(
        f"Model {chosen} fits best: of what the run's common model makes of the inputs, that group's is the nearest."
    )
    return chosen


def _save_model(run: RunModels, chosen: int, save: Path | None) -> None:
    if save is not None:
        # As for predictions, the file system itself refuses a name that is there already.
        with save.open("xb") as file:
            write_arrays(file, run.models[chosen])
        print(f"Model: {save}")
        if run.preprocessing is not None:
            with _beside(save).open("x", encoding="utf-8") as text:
                text.write(json.dumps(run.preprocessing.to_plain(), indent=1, ensure_ascii=False) + "\n")
            print(f"How tables become its inputs: {_beside(save)}")


def _beside(save: Path) -> Path:
    """Return the file of a saved model that says how tables become its inputs."""
    return save.with_suffix(".preprocessing.json")


def _list_losses(losses: NDArray[np.float64], chosen: int) -> None:
    order = np.argsort(losses, kind="stable")[:_MOST_LISTED]
    print("  model  loss")
    for index in sorted({*order.tolist(), chosen}):
        print(f"{'>' if index == chosen else ' '} {index:5d}  {losses[index]:.4g}")
    if len(losses) > len(order):
        print(f"  ({len(losses)} models; those with the lowest losses are listed)")


def _predict(run: RunModels, given: Mapping[str, str]) -> None:
    state, whose = chosen_model(run, _path(given["run"]), given)
    target = _new_file(given.get("output", "predictions.csv"), ".csv")
    new = read_data(run, _path(given["run"]), given, labelled=False)
    found = predict(run.task, state, new.x)
    what = "reconstruction_error" if run.task.spec.loss == "reconstruction" else "prediction"
    names, values = [], found.values
    if found.probabilities is not None:
        count = found.probabilities.shape[1]
        names = [*new.classes[:count], *map(str, range(len(new.classes), count))]
        if count > MOST_CLASSES:
            print(f"The file has the probability of the predicted class alone: the run has {count} classes.")
    elif new.preprocessing is not None and new.preprocessing.is_regression:
        values = new.preprocessing.in_unit(values)
    shown = [names[value] if names else f"{value:.9g}" for value in values.tolist()]
    Sheet(new.names, what, shown, new.ids, names, found.probabilities, new.counts).write(target)
    for name, counts in new.counts.items():
        if counts.any():
            print(f"{name}: {counted(int(counts.sum()), 'value')} in {counted(int((counts > 0).sum()), 'record')}")
    print(f"{counted(len(new.names), 'prediction')} of {whose}{_unit(new.preprocessing)}: {target}")


def _unit(preprocessing: Preprocessing | None) -> str:
    """Return what a table's regression predicts, and in which unit where that is declared."""
    if preprocessing is None or not preprocessing.is_regression:
        return ""
    unit = preprocessing.units.get(preprocessing.target)
    return f", {preprocessing.target}" + (f" in {unit}" if unit else "")


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
