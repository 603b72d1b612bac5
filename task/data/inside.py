"""Limits of the places that a node opens: its data folder, names that a server sends, and links in it."""

import os
from pathlib import Path


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
        "a link leads out of the data folder, and a node opens nothing outside it; copy what it leads to into that "
        "folder, or name the folder that holds all of it as data-dir."
    )


def links_inside(data_dir: Path, folder: Path) -> None:
    """Refuse a folder in `data_dir` in which, at any depth, a link leads out of `data_dir`.

    Raises
    ------
    ValueError
        As `inside`, of the first such link.
    """
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
            f"{key}={name!r}: must be a name, without / and \\ and other than '..': it becomes that of a file or "
            "folder in a node's data folder."
        )
    return name
