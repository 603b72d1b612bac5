"""`florets.sweep` and its result: many runs, one for each combination of values."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from florets.api.keys import choices_of
from florets.conf.problems import ConfigError
from florets.server_app import engine
from florets.task.callers_folder import import_from
from florets.task.threads import one_thread_within


class Sweep:
    """The results of a sweep.

    Parameters
    ----------
    folder : Path
        The sweep's folder.

    Raises
    ------
    ConfigError
        If the folder holds no sweep.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser().absolute()
        if not (self.folder / "summary.csv").is_file():
            raise ConfigError([f"{self.folder}: holds no sweep; give the folder that a sweep named as its results."])


@one_thread_within()
def sweep(experiment: str | Iterable[str] | None = None, /, **keys: Any) -> Sweep:
    """Run every combination of values and return the results.

    Parameters
    ----------
    experiment : str or several, optional
        Name of the preset, or the presets to compare; by default the quickstart.
    **keys
        The keys of the command; a list, tuple or range of values is tried value by value:
        ``strategy=["clove", "ifca"], seed=range(3)``. Hydra's own keys are given as
        ``**{"hydra/launcher": "joblib"}``.

    Returns
    -------
    Sweep
        Failed jobs are rows without figures; the others go on.

    Raises
    ------
    ConfigError
        If a value is wrong in every job that has it, or no job can run.
    """
    from florets.server_app.resume.go_on import Engine
    from florets.server_app.sweep.launch import run_sweep

    caller = Path.cwd()
    import_from(caller)
    _, folder = run_sweep(choices_of(experiment, keys), caller, Engine(engine.run, engine.resume))
    return Sweep(folder)
