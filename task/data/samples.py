"""Samples as a file or a NumPy archive holds them, and the checks that every reader ends with.

Errors say where a value stands, counted from 0, and not what it is: on a real node their text reaches the server.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from florets.task.data.dataset import TargetArray


@dataclass(frozen=True)
class Samples:
    """Inputs (n, *input_shape), and targets (n,) or (n, C), which are int64 class labels or float64 values.

    `scaled`: the inputs are integers of pixels, brought to [0, 1]. `is_real`: they are vectors of floating numbers.
    """

    x: NDArray[Any]
    y: TargetArray
    scaled: bool = False
    is_real: bool = False

    def of(self, rows: NDArray[np.int64]) -> "Samples":
        """Return some of the samples."""
        return replace(self, x=self.x[rows], y=self.y[rows])


def samples(path: Path, x: NDArray[Any], y: TargetArray) -> Samples:
    """Return inputs (n, ...) and `targets` of a file, checked; bytes are pixels: 0 to 255 become 0 to 1."""
    if x.ndim < 2 or len(x) == 0 or len(x) != len(y):
        raise ValueError(f"{path}: x has shape {x.shape} and y {y.shape}; x needs a row for each of the targets.")
    pixels = x.dtype == np.uint8
    with np.errstate(over="ignore"):
        inputs = x.astype(np.float32) / np.float32(255) if pixels else x.astype(np.float32, copy=False)
    for name, values in (("inputs", inputs), ("targets", y)):
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argwhere(~finite)[0][0])
            wrong = int((~finite).sum())
            raise ValueError(
                f"{path}: {wrong} of the {name} are not finite numbers, the first in sample {row}: fill the gaps or "
                "leave those samples out."
            )
    is_real = x.ndim == 2 and x.dtype.kind == "f"
    return Samples(np.ascontiguousarray(x if is_real else inputs), y, scaled=pixels, is_real=is_real)


def fits_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Say whether an input is of a shape, a flat row of as many numbers, or lacks the axis of its one channel."""
    flat = (math.prod(wanted),)
    return shape in (wanted, flat) or (len(wanted) == 3 and wanted[0] == 1 and shape == wanted[1:])


def targets(path: Path, values: NDArray[Any], classes: Sequence[str] | None, regression: bool) -> TargetArray:
    """Return targets as class labels, or as values of float64; names of `classes` may be written as 1.0 or TRUE."""
    if values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf" and classes is None:
        return values.astype(np.float64)
    if values.ndim != 1:
        raise ValueError(f"{path}: the targets have shape {values.shape}, and not one number or name a sample.")
    if classes is not None:
        label_of = {name: label for label, name in enumerate(classes)}
        # Exact names come first: where one is 01 and another 1, they are two.
        from florets.task.data.tables.table_text import class_name

        label_of = {**{class_name(name): label for name, label in label_of.items()}, **label_of}
        texts = [text if text in label_of else class_name(text) for text in map(str, values.tolist())]
        unknown = next((row for row, text in enumerate(texts) if text not in label_of), None)
        if unknown is not None:
            raise ValueError(f"{path}: the target of sample {unknown} is none of the classes ({', '.join(classes)}).")
        return np.array([label_of[text] for text in texts], dtype=np.int64)
    try:
        numbers = values.astype(np.float64) if values.dtype.kind in "biufU" else None
    except ValueError:
        numbers = None
    if numbers is None:
        remedy = "correct them" if regression else "name the classes in task.data_options.classes, or correct them"
        raise ValueError(f"{path}: the targets are not numbers: {remedy}.")
    if regression:
        return numbers
    # NaN fails the first test.
    whole = (numbers == np.floor(numbers)) & (numbers >= 0)
    if not whole.all():
        raise ValueError(
            f"{path}: the target of sample {int(np.argmin(whole))} is not a class label, an integer from 0: set "
            f"task.data_options.regression=true for values, or task.data_options.classes for names."
        )
    return numbers.astype(np.int64)


def read_npz(path: Path, classes: Sequence[str] | None, regression: bool) -> Samples:
    """Read the arrays ``x`` (n, ...) and ``y`` (n,) of an archive; arrays of Python objects are refused."""
    x, y = read_arrays(path, ("x", "y"))
    return samples(path, x, targets(path, y, classes, regression))


def read_arrays(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Read arrays of an archive by their names; the first holds inputs, real numbers. Errors quote nothing of it."""
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
        reason = (
            isinstance(error, OSError) and error.strerror
        ) or f"{type(error).__name__}: it is damaged, or not an archive"
        if "allow_pickle" in str(error):
            reason = "it is not an archive, or holds Python objects such as sparse matrices, which are not unpacked"
    if reason:
        call = ", ".join(f"{name}=..." for name in names)
        raise ValueError(f"the archive {path} cannot be read: {reason}. It is made by numpy.savez(path, {call}).")
    x = arrays[0]
    if not (np.issubdtype(x.dtype, np.number) or x.dtype == np.bool_) or np.iscomplexobj(x):
        raise ValueError(f"{path}: x holds {x.dtype}, but must hold real numbers.")
    return arrays
