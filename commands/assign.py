"""`florets assign`: which of a finished run's models fits data of a client that comes later."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from florets.api import new_data
from florets.commands.given_keys import read_keys
from florets.conf.problems import ConfigError
from florets.reports.console import counted
from florets.reports.folder import write_arrays
from florets.server_app.run_models import RunModels, load_run
from florets.task.imported import import_from

HELP = """florets assign run=<folder> data=<file or folder> [save=<file>] [client=<key>] [unlabelled=true]
  Say which of a finished run's models fits data with targets, and how well. CLoVE's frozen clusters or the groups of
  discovery or FLUX decide if the run has them, otherwise the lowest loss; for FedEM and FedRC the share of each
  model is printed. save= writes that model (.safetensors), and for tables how they become its inputs
  (.preprocessing.json). unlabelled=true: the data have no targets; for runs of FLUX.

florets predict run=<folder> data=<file or folder> model=<number> | client=<key> [output=predictions.csv]
  Write predictions for new inputs, by a model or by that of one of the run's clients: its own if the run has
  personal models, otherwise its group's. A row has the record's ids, the predicted class and the
  probability of every class, or the value in its unit, and how many cells were missing or of an unknown category.

data is a table as the sites have it (.csv, .tsv, ..., one record is enough; for assign with the target), a .npz
archive (x, and y for assign), or a folder of images (for assign: one folder for each class). It is read as in
the run. If a table has other names, units or missing marks, declare them in node.toml in its folder, or in
<name>.toml next to <name>.csv: rename, scale, missing, drop. In a run with task.table.standardise=site client=<key>
also selects the scale; a new site with 30 records or more has its own. For archives and images, override with:
classes=[<first>,...] image_size=<pixels> grayscale=true
trust=true lets a run's own model function (task.model=package.module:function) be imported."""

_KEYS = ("run", "data", "client", "save", "trust", "unlabelled", *new_data.FORM_KEYS)
_MOST_LISTED = 20


def main(arguments: Sequence[str]) -> int:
    """Assign data to one of a run's models, and return the exit code."""
    return on_run("assign", arguments, _KEYS, _assign)


def on_run(
    command: str, arguments: Sequence[str], keys: Sequence[str], act: Callable[[RunModels, Mapping[str, str]], None]
) -> int:
    """Read a command's `key=value` texts and its run, and do its work on it; return the exit code."""
    given = read_keys(command, arguments, keys, ("run", "data"), ("trust", "unlabelled"))
    import_from(Path.cwd())
    run = load_run(absolute(given["run"]), given.get("trust") == "true")
    try:
        act(run, given)
    except ConfigError:
        raise
    except FileExistsError as error:
        raise ConfigError(_taken(error.filename)) from None
    except ValueError as error:
        # Readers of data and builders of models say what is wrong and what to do; here their options are keys.
        raise ConfigError(str(error).replace("task.data_options.", "")) from None
    return 0


def _assign(run: RunModels, given: Mapping[str, str]) -> None:
    if "save" in given:
        new_data.refuse_one_model(run, f"save={given['save']}")
    save = new_file(given["save"], ".safetensors") if "save" in given else None
    if save is not None and run.preprocessing is not None:
        new_file(str(_beside(save)), ".json")
    if given.get("unlabelled") == "true":
        found = new_data.assign_unlabelled(
            run, new_data.read_data(run, absolute(given["run"]), given, labelled=False)
        )
        print(f"Model {found.model} fits best: {found.why}.")
        _save_model(run, found.model, save)
        return
    # An autoencoder's targets are its inputs.
    new = new_data.read_data(run, absolute(given["run"]), given, labelled=run.task.spec.loss != "reconstruction")
    if "client" in given and new.preprocessing is None:
        raise ConfigError(f"client={given['client']}: says whose scale a table has, and these data are no table.")
    print_notes(new, given)
    found = new_data.assign_data(run, new)
    if found.shares is not None:
        _print_shares(found)
        return
    if found.misfit:
        print(found.misfit)
    print(f"Model {found.model} fits best: {found.why}.")
    assert found.model is not None
    _list_losses(found.losses.tolist(), found.model)
    print(
        f"On {counted(found.num_examples, 'sample')}: "
        + ("" if found.accuracy is None else f"accuracy {found.accuracy:.1%}, ")
        + _errors(found)
        + f"loss {found.loss:.4g}"
    )
    if run.config.strategy.settings.adapts:
        print(
            "These figures are of the model as it was sent: each client of the run adapts it by a gradient step on "
            "its own training data before it uses it."
        )
    if client := new_data.trained_on(absolute(given["data"]), run, absolute(given["run"])):
        print(f"Client {client} took part in this run: the figures include data that the models were trained on.")
    _save_model(run, found.model, save)


def _errors(found: new_data.Assignment) -> str:
    """Return a regression's root mean squared error in the targets' unit, and its R2 where that is defined."""
    if found.rmse is None:
        return ""
    of_spread = "" if found.r2 is None else f"R2 {found.r2:.3f}, "
    return f"RMSE {found.rmse:.4g}{found.unit and f' {found.unit}'}, {of_spread}"


def _print_shares(found: new_data.Assignment) -> None:
    assert found.shares is not None
    print(f"These data are a mixture of {counted(len(found.shares), 'model')}:")
    print("  model  share")
    for model, share in enumerate(found.shares):
        print(f"  {model:5d}  {share:.3f}")
    accuracy = "" if found.accuracy is None else f"accuracy {found.accuracy:.1%}, "
    print(f"Mixed in these shares, on {counted(found.num_examples, 'sample')}: {accuracy}loss {found.loss:.4g}")


def print_notes(new: new_data.NewData, given: Mapping[str, str]) -> None:
    """Print how a table was read, where that is not plain."""
    if new.notes:
        print(f"{absolute(given['data']).name}: {'; '.join(new.notes)}")


def _save_model(run: RunModels, chosen: int | None, save: Path | None) -> None:
    if save is not None and chosen is not None:
        # As for predictions, the file system itself refuses a name that exists.
        with save.open("xb") as file:
            write_arrays(file, run.whole(run.models[chosen]))
        print(f"Model: {save}")
        if run.preprocessing is not None:
            with _beside(save).open("x", encoding="utf-8") as text:
                text.write(json.dumps(run.preprocessing.to_plain(), indent=1, ensure_ascii=False) + "\n")
            print(f"How tables become its inputs: {_beside(save)}")


def _beside(save: Path) -> Path:
    """Return the file of a saved model that says how tables become its inputs."""
    return save.with_suffix(".preprocessing.json")


def _list_losses(losses: Sequence[float], chosen: int) -> None:
    order = sorted(range(len(losses)), key=losses.__getitem__)[:_MOST_LISTED]
    print("  model  loss")
    for index in sorted({*order, chosen}):
        print(f"{'>' if index == chosen else ' '} {index:5d}  {losses[index]:.4g}")
    if len(losses) > len(order):
        print(f"  ({len(losses)} models; those with the lowest losses are listed)")


def absolute(text: str) -> Path:
    """Return a path meant from the working directory."""
    return Path(text).expanduser().absolute()


def new_file(text: str, suffix: str) -> Path:
    """Return the path of a file that is to be written; never one that exists."""
    path = absolute(text)
    if path.suffix != suffix:
        raise ConfigError(f"{text}: must end in {suffix}.")
    if path.exists() or path.is_symlink():
        raise ConfigError(_taken(path))
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist.")
    return path


def _taken(path: Path | str) -> str:
    return f"{path} exists and is not overwritten; name another file, or remove it."
