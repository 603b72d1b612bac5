"""Samples from a NumPy archive."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from florets.task.data.samples import Samples, samples, targets


def read_npz(path: Path, classes: Sequence[str] | None, regression: bool) -> Samples:
    """Read the arrays ``x`` (n, ...) and ``y`` (n,) of an archive; arrays of Python objects are refused.

    Raises
    ------
    ValueError
        If the file is no such archive; see also `targets` and `samples`.
    """
    x, y = read_arrays(path, ("x", "y"))
    return samples(path, x, targets(path, y, classes, regression))


def read_arrays(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Read arrays of an archive by their names; the first holds inputs, which must be real numbers.

    Raises
    ------
    ValueError
        If the file is no archive, is damaged, or lacks an array.
    """
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, NpzFile):
                raise ValueError("it is a single array (.npy)")
            missing = [name for name in names if name not in archive]
            if missing:
                raise ValueError(f"it holds the arrays {sorted(archive)}, but no {missing[0]!r}")
            arrays = [archive[name] for name in names]
    # Damaged archives raise zipfile's BadZipFile, zlib's error, NotImplementedError, ..., which are no ValueErrors.
    except Exception as error:
        call = ", ".join(f"{name}=..." for name in names)
        raise ValueError(f"{path} cannot be read: {error}. It is made by numpy.savez(path, {call}).") from error
    x = arrays[0]
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == np.bool_) or np.iscomplexobj(x):
        raise ValueError(f"{path}: x holds {x.dtype}, but must hold real numbers.")
    return arrays
