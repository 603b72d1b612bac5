"""Arrays of a MATLAB file, by SciPy."""

from pathlib import Path
from typing import Any

from florets.task.data.files import reading


def read_mat(data: str, path: Path, names: tuple[str, ...], layout: str, remedy: str) -> list[Any]:
    """Return arrays of a file of MATLAB's version 7 or before; see `florets.task.data.files.reading`.

    Raises
    ------
    ValueError
        If the file cannot be read, or does not hold all of `names`.
    """
    from scipy.io import loadmat  # few data sets need it
    from scipy.io.matlab import MatReadError

    with reading(data, path, layout, remedy), path.open("rb") as file:
        try:
            found = loadmat(file, variable_names=names)
        except MatReadError as error:
            raise ValueError(str(error)) from error
        return [found[name] for name in names]
