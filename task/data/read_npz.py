"""Samples from a NumPy archive."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from task.data.samples import Samples, samples, targets


def read_npz(path: Path, classes: Sequence[str] | None, regression: bool) -> Samples:
    """Read the arrays ``x`` (n, ...) and ``y`` (n,) of an archive; arrays of Python objects are refused.

    Raises
    ------
    ValueError
        If the file is no such archive; see also `targets` and `samples`.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in ("x", "y") if name not in archive]
            if missing:
                raise ValueError(f"it holds the arrays {sorted(archive)}, but no {missing[0]!r}")
            x, y = archive["x"], archive["y"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read: {error}. It is made by numpy.savez(path, x=..., y=...).") from error
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == np.bool_) or np.iscomplexobj(x):
        raise ValueError(f"{path}: x holds {x.dtype}, but must hold real numbers.")
    return samples(path, x, targets(path, y, classes, regression))
