"""Samples from a NumPy archive."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from florets.task.data.samples import Samples, samples, targets


def read_npz(path: Path, classes: Sequence[str] | None, regression: bool, owner: str | None = None) -> Samples:
    """Read the arrays ``x`` (n, ...) and ``y`` (n,) of an archive; arrays of Python objects are refused.

    Parameters
    ----------
    path
        The file.
    classes, regression
        See `targets`.
    owner
        Name of a further array (n,) that says whose each sample is; None: there is none.

    Raises
    ------
    ValueError
        If the file is no such archive, or does not tell one owner a sample; see also `targets` and `samples`.
    """
    x, y, *owners = read_arrays(path, ("x", "y", *([owner] if owner else [])))
    found = samples(path, x, targets(path, y, classes, regression))
    if not owners:
        return found
    if owners[0].shape != found.y.shape:
        raise ValueError(f"{path}: {owner} has shape {owners[0].shape}, but must name one owner for each sample.")
    return replace(found, owners=owners[0].astype(np.str_))


def read_arrays(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Read arrays of an archive by their names; the first holds inputs, which must be real numbers.

    Raises
    ------
    ValueError
        If the file is no archive, is damaged, or lacks an array; the text quotes nothing of the file.
    """
    arrays: list[NDArray[Any]] = []
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, NpzFile):
                found = set(archive)
                arrays = [archive[name] for name in names if name in found]
                missing = [name for name in names if name not in found]
                reason = f"it holds {len(found)} arrays, but no {missing[0]!r}" if missing else ""
            else:
                reason = "it is a single array (.npy)"
    # Damaged archives raise zipfile's BadZipFile, zlib's error, NotImplementedError, ..., which are no ValueErrors.
    # Their texts may quote the file, and are not passed on: on a real node they would reach the server.
    except Exception as error:
        reason = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: it is damaged, or none"
        if "allow_pickle" in str(error):
            reason = "it is no archive, or holds Python objects, which are not unpacked"
    if reason:
        call = ", ".join(f"{name}=..." for name in names)
        raise ValueError(f"the archive {path} cannot be read: {reason}. It is made by numpy.savez(path, {call}).")
    x = arrays[0]
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == np.bool_) or np.iscomplexobj(x):
        raise ValueError(f"{path}: x holds {x.dtype}, but must hold real numbers.")
    return arrays
