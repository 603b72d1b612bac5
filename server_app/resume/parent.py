"""`Parent`: the run that an extended one goes on from, as ``parent.json`` in its folder names it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.reports.folder import write_whole

PARENT = "parent.json"


@dataclass(frozen=True)
class Parent:
    """The earlier run.

    Parameters
    ----------
    run
        Its folder.
    rounds
        Rounds that it had done; the extended run's are numbered from the next one on.
    data_dir
        Data that these rounds were trained on.
    """

    run: str
    rounds: int
    data_dir: str

    def save(self, folder: Path) -> None:
        """Write the file into an extended run's folder."""
        write_whole(folder / PARENT, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


def read_parent(folder: Path) -> Parent | None:
    """Return the run that the one in a folder extends; None where it extends none.

    Raises
    ------
    ConfigError
        If the file is damaged.
    """
    path = folder / PARENT
    if not path.is_file():
        return None
    try:
        parent = Parent(**json.loads(path.read_text(encoding="utf-8")))
        if type(parent.rounds) is not int or parent.rounds < 1:
            raise ValueError(f"rounds={parent.rounds!r} is no number of rounds")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError([f"{path} cannot be read ({error}); extend the earlier run again."]) from error
    return parent
