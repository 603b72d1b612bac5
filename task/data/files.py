"""Files of public data sets and of nodes: where they are expected, what may be opened, and what is damaged."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def folder_of(data: str, data_dir: Path | None, folders: tuple[str, ...], layout: str, remedy: str) -> Path:
    """Return the first of `folders` that the data folder holds, or the data folder itself where it is one of them.

    Parameters
    ----------
    data
        Name of the data set, for the message.
    data_dir
        Folder that holds one of `folders`.
    folders
        Names that the data set's folder may have.
    layout
        The files that it holds, for the message.
    remedy
        Where they come from.
    """
    names = " or ".join(f"{name}/" for name in folders)
    expected = f"Give the folder that holds {names} as data_dir=<folder>. Expected in it: {layout}. {remedy}"
    if data_dir is None:
        raise ValueError(f"data {data} needs files, but data_dir is empty. {expected}")
    for name in folders:
        if (data_dir / name).is_dir():
            return data_dir / name
    if data_dir.name in folders and data_dir.is_dir():
        return data_dir
    raise ValueError(f"data {data}: {data_dir} has no folder {names}. {expected}")


@contextmanager
def reading(data: str, path: Path, layout: str, remedy: str) -> Iterator[None]:
    """Name a file that cannot be read, what was expected in it, and the remedy.

    Raises
    ------
    ValueError
        If the code inside raises what a missing, damaged or foreign file makes it raise.
    """
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, NotImplementedError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        if isinstance(error, FileNotFoundError):
            reason = "there is no such file"
        raise ValueError(f"data {data}: {path} cannot be read ({reason}). Expected: {layout}. {remedy}") from error


def inside(data_dir: Path, path: Path) -> Path:
    """Return a path with its links followed.

    Parameters
    ----------
    data_dir
        The node's data folder, which may be a link itself.
    path
        A file or folder in it.

    Raises
    ------
    ValueError
        If it lies elsewhere, or cannot be followed to an end.
    """
    try:
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
    """Return a name that is to become that of a file or folder.

    Raises
    ------
    ValueError
        If it is a path: it has a separator of any system or a NUL, is absolute, or is ``.``, ``..`` or empty.
    """
    if name in ("", ".", "..") or set(name) & set("/\\\0") or ":" in name[1:2]:
        raise ValueError(
            f"{key}={name!r}: must be a name, without / and \\ and other than '..': it names a file or folder in a "
            f"node's data folder."
        )
    return name


def read_mat(data: str, path: Path, names: tuple[str, ...], layout: str, remedy: str) -> list[Any]:
    """Return arrays of a file of MATLAB's version 7 or before; see `florets.task.data.files.reading`."""
    from scipy.io import loadmat  # few data sets need it
    from scipy.io.matlab import MatReadError

    with reading(data, path, layout, remedy), path.open("rb") as file:
        try:
            found = loadmat(file, variable_names=names)
        except MatReadError as error:
            raise ValueError(str(error)) from error
        return [found[name] for name in names]
