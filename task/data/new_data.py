"""Data that come after a run: samples with their targets, or inputs alone, from one file or folder."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from task.data.dataset import FloatArray
from task.data.read_csv import read_csv
from task.data.read_images import SUFFIXES, read_image, read_images
from task.data.read_npz import read_arrays, read_npz
from task.data.samples import Samples, samples

_FORMS = "a NumPy archive (.npz), a CSV file (.csv) or a folder of images"


@dataclass(frozen=True)
class Form:
    """How files are to be read; `task.data.own.own` says what each option means."""

    target: str = ""
    columns: Sequence[str] | None = None
    classes: Sequence[str] | None = None
    regression: bool = False
    image_size: int | None = None
    grayscale: bool = False


@dataclass(frozen=True)
class NewInputs:
    """Inputs float32 (n, ...) and what to call each: the image's file, or its number from 1."""

    x: FloatArray
    names: tuple[str, ...]


def read_labelled(path: Path, form: Form) -> Samples:
    """Read samples with their targets.

    Parameters
    ----------
    path
        An archive with x and y, a CSV file with a target column, or a folder of images ``<class>/``.
    form
        How to read them.

    Raises
    ------
    ValueError
        If there is no such file, or it does not have the form that is said.
    """
    if _kind(path) == ".npz":
        return read_npz(path, form.classes, form.regression)
    if _kind(path) == ".csv":
        return read_csv(path, form.target, form.columns, form.classes, form.regression)
    return read_images(path, form.classes, form.image_size, form.grayscale)


def read_inputs(path: Path, form: Form) -> NewInputs:
    """Read inputs without targets; where a file has targets, they are left aside.

    Parameters
    ----------
    path
        An archive with x, a CSV file whose columns are the inputs', or a folder of images.
    form
        How to read them.

    Raises
    ------
    ValueError
        If there is no such file, or it does not have the form that is said.
    """
    if _kind(path) == "":
        return _images(path, form)
    if _kind(path) == ".npz":
        (values,) = read_arrays(path, ("x",))
        x = samples(path, values, np.zeros(len(values) if values.ndim else 0, dtype=np.int64)).x
    else:
        x = _table(path, form)
    return NewInputs(x, tuple(str(number + 1) for number in range(len(x))))


def shaped(x: FloatArray, input_shape: tuple[int, ...]) -> FloatArray:
    """Return inputs in the shape that the models take; flat rows of as many numbers are brought into it.

    Raises
    ------
    ValueError
        If they are of another size.
    """
    if x.shape[1:] not in (input_shape, (int(np.prod(input_shape)),)):
        raise ValueError(
            f"the inputs have shape {x.shape[1:]}, but the run's models take {input_shape}: bring the data into that "
            "shape. Of a CSV file, target=<column> or columns=[<first>,<second>,...] says which columns are inputs."
        )
    return x.reshape(len(x), *input_shape)


def _kind(path: Path) -> str:
    if path.is_dir():
        return ""
    if path.is_file() and path.suffix.lower() in (".npz", ".csv"):
        return path.suffix.lower()
    found = "is another kind of file" if path.exists() else "does not exist"
    raise ValueError(f"the data {path} {found}: give {_FORMS}.")


def _table(path: Path, form: Form) -> FloatArray:
    columns = form.columns
    if columns is None:
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                header = [name.strip() for name in next(csv.reader(file, skipinitialspace=True), [])]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path} cannot be read: {error}. It must be UTF-8 text with commas.") from error
        columns = [name for name in header if name != form.target]
    if not columns:
        raise ValueError(f"{path} has no columns that could be inputs.")
    # A target is asked for; the first input serves, as a value that nobody looks at.
    return read_csv(path, columns[0], columns, None, regression=True).x


def _images(path: Path, form: Form) -> NewInputs:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"{path} holds no image.")
    pixels = []
    for file in files:
        pixels.append(read_image(file, form.image_size, form.grayscale))
        if pixels[-1].shape != pixels[0].shape:
            raise ValueError(f"{file}: is of another size than {files[0].name}: set image_size=<pixels>.")
    x = samples(path, np.stack(pixels), np.zeros(len(files), dtype=np.int64)).x
    return NewInputs(x, tuple(file.name for file in files))
