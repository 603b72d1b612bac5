"""Data that come after a run: samples with their targets, or inputs alone, from an archive or a folder of images.

Tables are read by `florets.task.data.tables.new_table`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from florets.task.data.dataset import FloatArray
from florets.task.data.image_pixels import ImageOptions
from florets.task.data.read_images import SUFFIXES, is_hidden, read_images, read_pixels
from florets.task.data.read_npz import read_arrays, read_npz
from florets.task.data.samples import Samples, fits_shape, samples
from florets.task.data.tables.declaration import is_table

_FORMS = "a table (such as .csv), a NumPy archive (.npz) or a folder of images"


@dataclass(frozen=True)
class Form:
    """How files are to be read; `florets.task.data.own.own` says what each option means."""

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
        An archive with x and y, or a folder of images ``<class>/``.
    form
        How to read them.

    Raises
    ------
    ValueError
        If there is no such file, or it does not have the form that is said.
    """
    if _kind(path) == ".npz":
        return read_npz(path, form.classes, form.regression)
    classes = form.classes or ()
    if not any((path / name).is_dir() for name in classes):
        _refuse_whole_node(path)
    if form.regression:
        raise ValueError(
            f"the data {path} is a folder, but a regression's targets are values: give a table or a .npz file."
        )
    return read_images(path, form.classes, form.images)


def read_inputs(path: Path, form: Form) -> NewInputs:
    """Read inputs without targets; where a file has targets, they are left aside.

    Parameters
    ----------
    path
        An archive with x, or a folder of images.
    form
        How to read them.

    Raises
    ------
    ValueError
        If there is no such file, or it does not have the form that is said.
    """
    if _kind(path) == "":
        return _images(path, form)
    (values,) = read_arrays(path, ("x",))
    x = samples(path, values, np.zeros(len(values) if values.ndim else 0, dtype=np.int64)).x
    return NewInputs(x, tuple(str(number + 1) for number in range(len(x))))


def shaped(path: Path, x: FloatArray, input_shape: tuple[int, ...]) -> FloatArray:
    """Return inputs of a file (for the message) in the shape that the models take, brought into it where they fit.

    Raises
    ------
    ValueError
        If they do not fit, see `florets.task.data.samples.fits_shape`.
    """
    if not fits_shape(x.shape[1:], input_shape):
        raise ValueError(
            f"{path}: the inputs have shape {x.shape[1:]}, but the run's models take {input_shape}: bring the data "
            "into that shape."
        )
    return x.reshape(len(x), *input_shape)


def _kind(path: Path) -> str:
    if path.is_dir():
        return ""
    if path.is_file() and path.suffix.lower() == ".npz":
        return ".npz"
    found = "is another kind of file" if path.exists() else "does not exist"
    raise ValueError(f"the data {path} {found}: give {_FORMS}.")


def _refuse_whole_node(path: Path) -> None:
    """Raise ValueError where a folder is one that a node trains on: it is not said which of its parts is meant."""
    found = [path / name for name in ("data.npz", "train.npz", "test.npz") if (path / name).is_file()]
    found += sorted(file for file in path.iterdir() if file.is_file() and is_table(file))
    found += [path / name for name in ("data", "train", "test") if (path / name).is_dir()]
    if found:
        raise ValueError(
            f"the data {path} is the folder of a node's whole data set: give {' or '.join(map(str, found))}."
        )


def _images(path: Path, form: Form) -> NewInputs:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and not is_hidden(file))
    if not files:
        _refuse_whole_node(path)
        raise ValueError(f"{path} holds no image.")
    x = samples(
        path, read_pixels([(file, str(file)) for file in files], form.images)[0], np.zeros(len(files), dtype=np.int64)
    ).x
    return NewInputs(x, tuple(file.name for file in files))
