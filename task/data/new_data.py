"""Data that arrive after a run, from archives, images or tables, prepared as the run's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import FloatArray, TargetArray
from florets.task.data.image_files import SUFFIXES, ImageOptions, is_hidden, read_images, read_pixels
from florets.task.data.samples import fits_shape, read_arrays, read_npz, samples
from florets.task.data.tables.declaration import Declaration, Site, site_of
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.data.tables.read import read_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Form(ImageOptions):
    """How files are to be read; `florets.task.data.own.own` says what each option means."""

    classes: Sequence[str] | None = None
    regression: bool = False


@dataclass(frozen=True)
class NewData:
    """Samples that are new to a run."""

    x: FloatArray
    y: TargetArray | None = None
    """None where they were not asked for."""
    names: Sequence[str] = ()
    """What each sample is called: the image's file, or its number from 1."""
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of a table: the cells (n,) of each column that names a record, as they are in the file."""
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Of a table: how many values of each record are missing or unknown."""
    notes: Sequence[str] = ()
    """How a table was read, where that is not plain."""


def numbered(count: int) -> list[str]:
    """Return what so many samples without names are called."""
    return [str(number + 1) for number in range(count)]


def read_new(path: Path, form: Form, labelled: bool) -> NewData:
    """Read an archive (x; y where targets are wanted) or a folder of images (of ``<class>/`` where they are)."""
    if path.is_file() and path.suffix.lower() == ".npz":
        if labelled:
            found = read_npz(path, form.classes, form.regression)
            return NewData(found.x, found.y)
        (values,) = read_arrays(path, ("x",))
        return NewData(_inputs(path, values), names=numbered(len(values)))
    if not path.is_dir():
        problem = "is another kind of file" if path.exists() else "does not exist"
        raise ValueError(f"the data {path} {problem}: give a table, a NumPy archive (.npz) or a folder of images.")
    if labelled:
        if form.regression:
            raise ValueError(f"the data {path} is a folder, and a regression's targets are values: give a .npz file.")
        images = read_images(path, form.classes, form)
        return NewData(images.x, images.y)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and not is_hidden(file))
    if not files:
        raise ValueError(f"{path} holds no image.")
    pixels = read_pixels([(file, str(file)) for file in files], form)
    return NewData(_inputs(path, pixels), names=[file.name for file in files])


def _inputs(path: Path, values: NDArray[np.generic]) -> FloatArray:
    return samples(path, values, np.zeros(len(values) if values.ndim else 0, dtype=np.int64)).x


def shaped(path: Path, x: FloatArray, input_shape: tuple[int, ...]) -> FloatArray:
    """Return inputs of a file (for the message) in the shape that the models take, brought into it where they fit."""
    if not fits_shape(x.shape[1:], input_shape):
        raise ValueError(f"{path}: the inputs have shape {x.shape[1:]}, but the run's models take {input_shape}.")
    return x.reshape(len(x), *input_shape)


_FAR = 4.0
"""Standard deviations from a run's mean that most values of a new table do not exceed in the same unit."""


def read_new_table(
    path: Path, declared: Declaration, preprocessing: Preprocessing, labelled: bool, whose: Site | None = None
) -> NewData:
    """Read a file as the run's sites do; a node's file next to it, or `whose` it is, says what it has otherwise."""
    site = site_of(path)
    site = whose if whose is not None and site == Site() else site
    table = read_table(path, _as_the_run(declared, preprocessing, labelled), site)
    frame, notes = table.frame, list(table.notes)
    preprocessing.check(frame)
    notes += _far(preprocessing, frame)
    y = None
    if labelled:
        if preprocessing.target not in frame.columns:
            raise ValueError(f"{path.name} has no column {preprocessing.target!r}, the target.")
        kept = frame.dropna(subset=[preprocessing.target])
        if not len(kept):
            raise ValueError(f"{path.name}: no record has a target {preprocessing.target!r}.")
        if untargeted := len(frame) - len(kept):
            notes.append(f"records without a target that are left out: {untargeted}")
        frame = kept
        y = preprocessing.targets(frame)
    ids = {
        name: tuple("" if cell is None or cell != cell else str(cell) for cell in frame[name])
        for name in preprocessing.ids
        if name in frame.columns
    }
    prepared = preprocessing.inputs(frame)
    counts = {"missing": prepared.missing, "unknown": prepared.unknown}
    return NewData(prepared.x, y, numbered(len(frame)), ids, counts, notes)


def _far(preprocessing: Preprocessing, frame: "pd.DataFrame") -> list[str]:
    """Return a warning for each numeric column most of whose values lie far from the run's."""
    found = []
    for column in preprocessing.numeric:
        values = frame[column.name].to_numpy(dtype=np.float64, na_value=np.nan)
        known = np.abs(values[~np.isnan(values)] - column.mean) / column.std
        if len(known) and float(np.median(known)) > _FAR:
            found.append(
                f"warning: {column.name!r} lies more than {_FAR:g} standard deviations from the run's mean in most "
                "records: compare units (scale in the node's file) and marks of missing values"
            )
    return found


def _as_the_run(declared: Declaration, preprocessing: Preprocessing, labelled: bool) -> Declaration:
    """Return what the file is read by: a column holds words or numbers as in the run, whatever is in this file."""
    numeric = [column.name for column in preprocessing.numeric]
    # A target that was not declared was read as an input; not looked at, it must not be parsed either.
    target = declared.target if labelled else preprocessing.target
    parsed = [*numeric, *([] if target else [preprocessing.target])]
    return replace(
        declared,
        target=target,
        columns=parsed,
        id=list(preprocessing.ids),
        categorical=[column.name for column in preprocessing.categorical],
        drop=[],
        group="",
        owner="",
    )
