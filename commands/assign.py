"""`florets assign` and `florets predict`: which of a finished run's models fits new data, and its predictions."""

from collections.abc import Sequence
from pathlib import Path

from florets.api import new_data
from florets.conf.problems import ConfigError
from florets.reports.console import counted
from florets.server_app.run_models import RunModels, load_run

_MOST_LISTED = 20


def assign(run: str | Path, data: str | Path, *, trust: bool = False) -> None:
    """Print which of a finished run's models fits data with targets, and how well.

    CLoVE's frozen clusters or the groups of discovery or FLUX decide if the run has them, otherwise the lowest loss;
    for FedEM and FedRC the share of each model is printed. Data that took part in the run fit better than new ones.

    Parameters
    ----------
    run : str or Path
        The run's folder.
    data : str or Path
        A table as the sites have it (.csv, .tsv, ..., one record is enough) with the target, a .npz archive (x and
        y), or a folder of images, one folder for each class.
    trust : bool
        Whether a run's own model function (``task.model=package.module:function``) may be imported.

    Notes
    -----
    Data are read as in the run. If a table has other names, units or missing marks, declare them in node.toml in its
    folder, or in <name>.toml next to <name>.csv: rename, scale, missing, drop.
    """
    loaded, path = load_run(_absolute(run), trust), _absolute(data)
    found = new_data.assign_new(loaded, path)
    _print_notes(path, found.notes)
    _print_assignment(found, loaded)


def predict(
    run: str | Path,
    data: str | Path,
    *,
    model: int | None = None,
    client: str | None = None,
    output: str | Path = "predictions.csv",
    trust: bool = False,
) -> None:
    """Write predictions for new inputs, by a model of a finished run or by that of one of its clients.

    A row has the record's ids, the predicted class and the probability of every class, or the value in its unit, and
    how many cells were missing or of an unknown category.

    Parameters
    ----------
    run : str or Path
        The run's folder.
    data : str or Path
        As for ``florets assign``, without targets: a table, an archive (x), or a folder of images.
    model : int, optional
        Number of the model, as ``florets assign`` prints it.
    client : str, optional
        In place of it a client of the run: its own model if it has one, otherwise its group's.
    output : str or Path
        The new file; by default predictions.csv.
    trust : bool
        Whether a run's own model function (``task.model=package.module:function``) may be imported.
    """
    folder, path, target = _absolute(run), _absolute(data), _new_file(output)
    found = new_data.predict_new(folder, load_run(folder, trust), path, client, model)
    _print_notes(path, found.notes)
    try:
        found.write(target)
    except FileExistsError:
        raise ConfigError(_taken(target)) from None
    for name, counts in found.counts.items():
        if counts.any():
            print(f"{name}: {counted(int(counts.sum()), 'value')} in {counted(int((counts > 0).sum()), 'record')}")
    what = found.target and f", {found.target}"
    print(f"{counted(len(found), 'prediction')} of {found.model}{what}: {target}")


def _print_assignment(found: new_data.Assignment, run: RunModels) -> None:
    samples = counted(found.num_examples, "sample")
    figures = [] if found.accuracy is None else [f"accuracy {found.accuracy:.1%}"]
    figures += [] if found.rmse is None else [f"RMSE {found.rmse:.4g}"]
    figures += [] if found.r2 is None else [f"R2 {found.r2:.3f}"]
    how_well = ", ".join([*figures, f"loss {found.loss:.4g}"])
    if found.shares is not None:
        print(f"These data are a mixture of {counted(len(found.shares), 'model')}:")
        print("  model  share")
        for model, share in enumerate(found.shares):
            print(f"  {model:5d}  {share:.3f}")
        print(f"Mixed in these shares, on {samples}: {how_well}")
        return
    if found.misfit:
        print(found.misfit)
    print(f"Model {found.model} fits best: {found.why}.")
    order = sorted(range(len(found.losses)), key=found.losses.__getitem__)[:_MOST_LISTED]
    print("  model  loss")
    for index in sorted({*order, found.model or 0}):
        print(f"{'>' if index == found.model else ' '} {index:5d}  {found.losses[index]:.4g}")
    if len(found.losses) > len(order):
        print(f"  ({len(found.losses)} models; those with the lowest losses are listed)")
    print(f"On {samples}: {how_well}")
    if run.config.strategy.settings.adapts:
        print(
            "These figures are of the model as it was sent: each client of the run adapts it by a gradient step on "
            "its own training data before it uses it."
        )


def _print_notes(path: Path, notes: Sequence[str]) -> None:
    if notes:
        print(f"{path.name}: {'; '.join(notes)}")


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _new_file(output: str | Path) -> Path:
    """Return the path of the table that is to be written; never one that exists."""
    path = _absolute(output)
    if path.suffix != ".csv":
        raise ConfigError(f"{output}: must end in .csv.")
    if path.exists() or path.is_symlink():
        raise ConfigError(_taken(path))
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist.")
    return path


def _taken(path: Path) -> str:
    return f"{path} exists and is not overwritten; name another file (output=<file>), or remove it."
