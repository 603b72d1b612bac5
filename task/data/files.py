"""Files of public data sets and of nodes: where they are expected, what may be opened, and what is damaged."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PublicFiles:
    """The files of a public data set: where they lie, what they are, and where they come from, for messages."""

    data: str
    folders: tuple[str, ...]
    layout: str
    remedy: str

    def folder(self, data_dir: Path | None) -> Path:
        """Return the first of `folders` that the data folder holds, or the data folder itself where it is one."""
        names = " or ".join(f"{name}/" for name in self.folders)
        expected = f"Give the folder that holds {names} as data_dir=<folder>. Expected in it: {self.layout}."
        if data_dir is None:
            raise ValueError(f"data {self.data} needs files, but data_dir is empty. {expected} {self.remedy}")
        for name in self.folders:
            if (data_dir / name).is_dir():
                return data_dir / name
        if data_dir.name in self.folders and data_dir.is_dir():
            return data_dir
        raise ValueError(f"data {self.data}: {data_dir} has no folder {names}. {expected} {self.remedy}")

    def error(self, problem: str) -> ValueError:
        """Return the error that names a problem, what was expected, and the remedy."""
        return ValueError(f"data {self.data}: {problem}. Expected: {self.layout}. {self.remedy}")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Raise ValueError, which names the file, where the block finds it missing, damaged or of another form."""
        try:
            yield
        except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, NotImplementedError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
            if isinstance(error, FileNotFoundError):
                reason = "there is no such file"
            raise self.error(f"{path} cannot be read ({reason})") from error

    def read_mat(self, path: Path, *names: str) -> list[Any]:
        """Return arrays of a file of MATLAB's version 7 or before."""
        from scipy.io import loadmat  # few data sets need it
        from scipy.io.matlab import MatReadError

        with self.reading(path), path.open("rb") as file:
            try:
                found = loadmat(file, variable_names=names)
            except MatReadError as error:
                raise ValueError(str(error)) from error
            return [found[name] for name in names]


def inside(data_dir: Path, path: Path) -> Path:
    """Return a path in a data folder with its links followed; refuse one that leads elsewhere."""
    try:
        try:
            # Only so Python 3.13 refuses links in a circle.
            found = path.resolve(strict=True)
        except FileNotFoundError:
            found = path.resolve()
        if found.is_relative_to(data_dir.resolve()):
            return found
    except (OSError, RuntimeError, ValueError):
        # Links in a circle, or names that no file can have.
        pass
    # On a real node the text reaches the server, and a file may be called after a person.
    raise ValueError(
        "a link points outside the data folder, and a node opens nothing outside it; copy its target into that "
        "folder, or name the folder that holds all of it as data-dir."
    )


def links_inside(data_dir: Path, folder: Path) -> None:
    """Refuse a folder in `data_dir` in which, at any depth, a link leads out of `data_dir`."""
    for place, folders, files in os.walk(inside(data_dir, folder)):
        for name in sorted([*folders, *files]):
            if os.path.islink(path := os.path.join(place, name)):
                inside(data_dir, Path(path))


def file_name(key: str, name: str) -> str:
    """Return a name that is to become that of a file or folder; refuse a path."""
    if name in ("", ".", "..") or set(name) & set("/\\\0") or ":" in name[1:2]:
        raise ValueError(f"{key}={name!r}: must be the name of a file or folder, without / and \\ and no '..'.")
    return name
