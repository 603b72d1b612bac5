"""Files of public data sets: where they are expected, and what is said when they are missing or damaged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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

    Raises
    ------
    ValueError
        If no folder is given, or none of them exists.
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
