"""`florets.load`: an earlier run or sweep from its folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from florets.api.run import Run
from florets.conf.problems import ConfigError
from florets.task.edited_modules import reload_edited

if TYPE_CHECKING:
    from florets.api.sweep import Sweep


def load(folder: str | Path, *, trust: bool = False) -> "Run | Sweep":
    """Return the finished run, or the sweep, that a folder holds.

    Parameters
    ----------
    folder : str or Path
        The folder that the run or the sweep named as its results.
    trust : bool
        Whether code that the run names by an import path may be imported and called.

    Raises
    ------
    ConfigError
        If the folder holds neither.
    """
    reload_edited()
    path = Path(folder).expanduser().absolute()
    if (path / "summary.csv").is_file():
        from florets.api.sweep import Sweep

        return Sweep(path)
    if not path.is_dir():
        raise ConfigError(f"{path}: there is no such folder; give the folder of a finished run or of a sweep.")
    return Run(path, trust)
