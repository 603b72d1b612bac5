"""Data that come after a run: samples with their targets, or inputs alone, from one file or folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from florets.task.data.dataset import FloatArray
from florets.task.data.image_pixels import ImageOptions
from florets.task.data.read_csv import Columns, find_columns, read_csv, read_header
from florets.task.data.read_images import SUFFIXES, is_hidden, read_images, read_pixels
from florets.task.data.read_npz import read_arrays, read_npz
from florets.task.data.samples import Samples, fits_shape, samples

_FORMS = "a NumPy archive (.npz), a CSV file (.csv) or a folder of images"


@dataclass(frozen=True)
class Form:
    """How files are to be read; `florets.task.data.own.own` says what each option means."""

    target: str = ""
    columns: Sequence[str] | None = None
    classes: Sequence[str] | None = None
    regression: bool = False
    image_size: int | None = None
    grayscale: bool = False
    depth: int | None = None

    @property
    def images(self) -> ImageOptions:
        """How images are to be read."""
        return ImageOptions(self.image_size, self.grayscale, self.depth)


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
        return read_csv(path, _columns(path, form), form.classes, form.regression)
    classes = form.classes or ()
    if not any((path / name).is_dir() for name in classes):
        _refuse_whole_node(path)
    if form.regression:
        raise ValueError(
            f"the data {path} is a folder, but a regression's targets are values: give a .npz or .csv file."
        )
    return read_images(path, form.classes, form.images)


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


def shaped(path: Path, x: FloatArray, input_shape: tuple[int, ...]) -> FloatArray:
    """Return inputs of a file (for the message) in the shape that the models take, brought into it where they fit.

    Raises
    ------
    ValueError
        If they do not fit, see `florets.task.data.samples.fits_shape`.
    """
    if not fits_shape(x.shape[1:], input_shape):
        remedy = (
            "target=<column> or columns=[<first>,<second>,...] says which columns are inputs"
            if path.suffix.lower() == ".csv"
            else "bring the data into that shape"
        )
        raise ValueError(
            f"{path}: the inputs have shape {x.shape[1:]}, but the run's models take {input_shape}: {remedy}."
        )
    return x.reshape(len(x), *input_shape)


def _kind(path: Path) -> str:
    if path.is_dir():
        return ""
    if path.is_file() and path.suffix.lower() in (".npz", ".csv"):
        return path.suffix.lower()
    found = "is another kind of file" if path.exists() else "does not exist"
    raise ValueError(f"the data {path} {found}: give {_FORMS}.")


def _refuse_whole_node(path: Path) -> None:
    """Raise ValueError where a folder is one that a node trains on: it is not said which of its parts is meant."""
    parts = [path / f"{name}{suffix}" for suffix in (".npz", ".csv", "") for name in ("data", "train", "test")]
    found = [str(part) for part in parts if (part.is_file() if part.suffix else part.is_dir())]
    if found:
        raise ValueError(f"the data {path} is the folder of a node's whole data set: give {' or '.join(found)}.")


def _columns(path: Path, form: Form) -> Columns:
    if form.columns is not None and not form.target:
        rest = [name for name in read_header(path) if name not in form.columns]
        if len(rest) > 1:
            raise ValueError(
                f"{path} has the columns {', '.join(rest)} beside the inputs: say with target=<column> which of them "
                "is to be predicted."
            )
    return find_columns(path, form.target, form.columns)


def _table(path: Path, form: Form) -> FloatArray:
    columns = form.columns
    if columns is None:
        columns = [name for name in read_header(path) if name != form.target]
    if not columns:
        raise ValueError(f"{path} has no columns that could be inputs.")
    # A target is asked for; the first input serves, as a value that nobody looks at.
    return read_csv(path, find_columns(path, columns[0], columns), None, regression=True).x


def _images(path: Path, form: Form) -> NewInputs:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and not is_hidden(file))
    if not files:
        _refuse_whole_node(path)
        raise ValueError(f"{path} holds no image.")
    x = samples(
        path, read_pixels([(file, str(file)) for file in files], form.images)[0], np.zeros(len(files), dtype=np.int64)
    ).x
    return NewInputs(x, tuple(file.name for file in files))
