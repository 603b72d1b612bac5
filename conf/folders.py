"""Folders: the app's own, florets' presets, and the user's."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from florets.conf.problems import ConfigError

PROJECT = Path(__file__).resolve().parents[1]
"""Folder with the app's pyproject.toml: the repository, or the installed package, whose wheel carries a copy."""

OWN_DIR = "FLORETS_CONFIG_DIR"
"""Environment variable that names the user's folder: the processes of a sweep inherit it."""

GROUPS = ("experiment", "task", "train")
YAML = ".yaml"
_OPTION = "--config-dir"


def own_dir() -> Path | None:
    """Return the user's folder, None where there is none."""
    text = os.environ.get(OWN_DIR)
    return Path(text) if text else None


@contextmanager
def own_presets(arguments: Sequence[str], caller: Path) -> Iterator[list[str]]:
    """Take the folder of ``--config-dir`` as the user's inside the block, also for processes that are started there.

    Parameters
    ----------
    arguments
        The command line, with ``--config-dir <folder>`` or ``--config-dir=<folder>`` or without; the rest is yielded.
    caller
        The working directory that a relative folder is meant from.

    Raises
    ------
    ConfigError
        If it is no folder with presets.
    """
    rest, before = list(arguments), os.environ.get(OWN_DIR)
    try:
        place = next((i for i, text in enumerate(rest) if text.partition("=")[0] == _OPTION), None)
        if place is not None:
            _, equals, text = rest.pop(place).partition("=")
            if not equals:
                text = rest.pop(place) if place < len(rest) else ""
            os.environ[OWN_DIR] = str(_checked(text, caller))
        yield rest
    finally:
        if before is None:
            os.environ.pop(OWN_DIR, None)
        else:
            os.environ[OWN_DIR] = before


def _checked(text: str, caller: Path) -> Path:
    if not text:
        raise ConfigError([f"{_OPTION}: name the folder, as {_OPTION} my_presets."])
    folder = (caller / Path(text).expanduser()).absolute()
    if not any(True for group in GROUPS for _ in (folder / group).rglob("*.yaml")):
        what = "has no preset" if folder.is_dir() else "is no folder"
        raise ConfigError(
            [f"{_OPTION} {text}: {what}; presets are the files experiment/<name>.yaml in it (task/, train/ too)."]
        )
    return folder


def names_in(folder: Path, group: str) -> list[str]:
    """Return the names that a folder offers of a group."""
    root = folder / group
    return [entry.path[len(str(root)) + 1 : -len(YAML)].replace(os.sep, "/") for entry in files_below(str(root))]


def files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the YAML files in a folder and its folders, none where there is no such folder; links are not followed.

    Every composition asks for them, and `Path.rglob` takes four times as long.
    """
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path)
            elif entry.name.endswith(YAML):
                yield entry


def names_of(group: str, florets: Path) -> list[str]:
    """Return the names that a group offers, sorted: those in florets' folder and in the user's.

    Raises
    ------
    ConfigError
        If a name is in both: which of them is meant would depend on who reads it.
    """
    built_in, own = names_in(florets, group), own_dir()
    if own is None:
        return sorted(built_in)
    mine = names_in(own, group)
    if both := sorted(set(mine) & set(built_in)):
        raise ConfigError([f"{own / group / both[0]}.yaml: florets has one of this name; choose another."])
    return sorted([*built_in, *mine])


def file_of(group: str, name: str, florets: Path) -> Path:
    """Return the path of a group's file, in the user's folder or in florets'."""
    own = own_dir()
    path = None if own is None else own / group / f"{name}.yaml"
    return path if path is not None and path.is_file() else florets / group / f"{name}.yaml"


def version() -> str:
    """Return the version of this copy of the package."""
    # Costs time that only this needs.
    import tomllib

    described = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(described["project"]["version"])
