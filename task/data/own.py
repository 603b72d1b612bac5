"""Data of one's own, as it lies in a folder: NumPy archives, CSV files, or one folder of images per class."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.data.image_pixels import ImageOptions
from florets.task.data.inside import inside, links_inside
from florets.task.data.read_csv import Columns, find_columns, read_csv
from florets.task.data.read_images import read_images
from florets.task.data.read_npz import read_npz
from florets.task.data.samples import Samples
from florets.task.data.standardise import Scale
from florets.task.randomness import Purpose, generator
from florets.task.registry import register_data

_FORMS = "train.npz and test.npz, train.csv and test.csv, or image folders train/<class>/ and test/<class>/"


@register_data("own")
def own(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    target: str | None = None,
    columns: list[str] | None = None,
    classes: list[str | int] | None = None,
    regression: bool = False,
    image_size: int | None = None,
    grayscale: bool = False,
    depth: int | None = None,
    test_share: float = 0.2,
    owner: str | None = None,
    standardise: bool = False,
) -> Dataset:
    """Read the data set of one folder.

    It holds ``train.npz`` and ``test.npz`` (arrays x and y), or ``train.csv`` and ``test.csv`` (with a header), or
    folders of images ``train/<class>/`` and ``test/<class>/``. One undivided set, ``data.npz``, ``data.csv`` or
    ``data/<class>/``, is split.

    Parameters
    ----------
    data_dir
        The folder.
    seed
        Seed of the run: draws the split of an undivided set.
    num_clusters
        Not used.
    target
        CSV: name of the column to predict; None: the last one that is no input.
    columns
        CSV: the columns that make up an input, in this order, whatever order a file has them in; None: all but the
        target, in the file's order (of ``train.csv``, where there are two files).
    classes
        Names of the classes: label 0 is the first; numbers stand for names as well. Needed where files hold names;
        without it targets are integers from 0.
    regression
        Targets are values and no classes.
    image_size
        Images are resized to so many pixels in height and width; None: they must all have one size.
    grayscale
        Images are read with one channel in place of three.
    depth
        Significant bits of images of one channel whose files have 16 or 32 bits (12, say): their pixels are divided
        by 2**depth - 1 in place of the largest value of the files' type. See
        `florets.task.data.image_pixels.read_image`.
    test_share
        Share of an undivided set that becomes the test set.
    owner
        CSV: name of the column that says whose each line is; archives: name of that array. It is no input; the
        partition ``natural`` goes by it. None: there is none.
    standardise
        Every column, or channel of images, is brought to mean 0 and standard deviation 1 of this folder's training
        set; nobody else sees either.

    Raises
    ------
    ValueError
        If there is no data set, more than one, it does not have the form that the options say, or a link leads out of
        the folder.
    """
    if data_dir is None or not data_dir.is_dir():
        raise ValueError(
            f"the data folder {data_dir} does not exist: give the folder of {_FORMS} as data-dir in the node config "
            "(in process: data_dir, with one such folder for each client)."
        )
    if not 0 < test_share < 1:
        raise ValueError(f"task.data_options.test_share={test_share} must be between 0 and 1.")
    if classes is not None and regression:
        raise ValueError(
            "task.data_options.regression=true, but task.data_options.classes names classes, and a regression has "
            "none: set task.data_options.classes=null (a preset may name them), or leave out the regression."
        )
    labels = None if classes is None else [str(name) for name in classes]
    if labels is not None and len(set(labels)) < len(labels):
        raise ValueError(f"task.data_options.classes={labels} must be different names.")
    images = ImageOptions(image_size, grayscale, depth)
    paths = _find(data_dir)
    table = _table(paths, target, columns, owner) if paths[0].suffix == ".csv" else None

    def read(path: Path) -> Samples:
        if table is not None:
            return read_csv(path, table, labels, regression)
        if path.suffix == ".npz":
            return read_npz(path, labels, regression, owner)
        if owner is not None:
            raise ValueError(
                f"task.data_options.owner={owner}: folders of images do not tell whose an image is; leave it out, or "
                "give an archive."
            )
        links_inside(data_dir, path)
        return read_images(path, labels, images)

    parts = [read(path) for path in paths]
    train, test = parts if len(parts) == 2 else _split(parts[0], test_share, generator(seed, 0, Purpose.DATA))
    if standardise:
        scale = Scale.of(train.x)
        train, test = (replace(part, x=scale.apply(part.x)) for part in (train, test))
    names = None if table is None else table.inputs
    num_outputs = 1 if regression else int(max(train.y.max(), test.y.max())) + 1
    # Values do not group samples, and a node's own data are not shared out by groups.
    groups = [np.zeros(len(part.y), dtype=np.int64) if regression else part.y for part in (train, test)]
    return Dataset(
        train.x,
        train.y,
        test.x,
        test.y,
        num_outputs,
        groups[0],
        groups[1],
        columns=names,
        owners_train=train.owners,
        owners_test=test.owners,
        scaled=None if table is not None else train.scaled,
    )


def _table(paths: Sequence[Path], target: str | None, columns: list[str] | None, owner: str | None) -> Columns:
    """Return the columns of the first file, after a look whether the others have the same."""
    first = find_columns(paths[0], target, columns, owner)
    for path in paths[1:]:
        other = find_columns(path, first.target, columns, owner).inputs
        if set(other) != set(first.inputs):
            # Here, for it loads Flower, which reading data needs nowhere else.
            from florets.task.wire.columns import column_difference

            raise ValueError(
                f"{path}: of the columns of {paths[0].name} it {column_difference(other, first.inputs)}."
            )
    return first


def _find(folder: Path) -> Sequence[Path]:
    """Return the paths of a train and a test set, or of one undivided set; none is a link that leads elsewhere."""
    found: dict[str, list[Path]] = {}
    for suffix in (".npz", ".csv", ""):
        for names in (("train", "test"), ("data",)):
            paths = [folder / f"{name}{suffix}" for name in names]
            there = [path for path in paths if (path.is_file() if suffix else path.is_dir())]
            if there and len(there) < len(paths):
                missing = next(path for path in paths if path not in there)
                raise ValueError(
                    f"{folder} has {there[0].name} but no {missing.name}: give both, or one undivided set as "
                    f"data{suffix}."
                )
            if there:
                found[" and ".join(path.name for path in there)] = there
    if not found:
        raise ValueError(f"{folder} holds no data set: give {_FORMS}, or one undivided set under the name data.")
    if len(found) > 1:
        raise ValueError(f"{folder} holds several data sets ({'; '.join(found)}): leave one.")
    paths = next(iter(found.values()))
    for path in paths:
        inside(folder, path)
    return paths


def _split(samples: Samples, test_share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Cut off a test set: `test_share` of the samples, rounded, and at least one on either side."""
    n = len(samples.y)
    if n < 2:
        raise ValueError(
            f"an undivided data set of {n} samples cannot be split into train and test: give at least 2."
        )
    order = rng.permutation(n)
    num_test = min(max(round(test_share * n), 1), n - 1)
    # In their old order, so that a split differs from another only in its samples.
    test, train = np.sort(order[:num_test]), np.sort(order[num_test:])
    return samples.of(train), samples.of(test)
