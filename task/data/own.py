"""Data of one's own, as it lies in a folder: tables, NumPy archives, or one folder of images per class."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.array_scale import MOST_FEATURES, ArrayScale
from florets.task.data.dataset import Dataset, Pixels, TargetArray
from florets.task.data.files import inside, links_inside
from florets.task.data.image_files import ImageOptions, read_images
from florets.task.data.samples import Samples, read_arrays, read_npz
from florets.task.data.splits import TEST_SHARE, split_rows
from florets.task.data.tables.agreement import agree
from florets.task.data.tables.declaration import SUFFIXES, is_table
from florets.task.data.tables.description import Description, TargetSummary
from florets.task.data.tables.site_table import SiteTable
from florets.task.randomness import Purpose, generator
from florets.task.registry import check_ranges

FEWEST = 10
"""Fewest records that a node describes: a statement about fewer would be one about each."""
_DARK, _BRIGHT = 100.0, 255.0
"""Range of the largest value of pixels."""
_FEWEST_PIXELS = 64


def _are_pixels(data: Dataset) -> bool:
    """Return whether arrays that nothing scales hold images, or long rows of integers, of 0 to 255."""
    x = data.x_train
    # Bytes have been divided by 255 already; of few records it is not said.
    if isinstance(x, Pixels) or data.scaled or len(x) < FEWEST or (x.ndim < 3 and x.shape[1] < _FEWEST_PIXELS):
        return False
    is_bright = bool(x.min() >= 0 and _DARK < x.max() <= _BRIGHT)
    return is_bright and (x.ndim >= 3 or bool((x == np.floor(x)).all()))


_FORMS = "a table (data.csv), a NumPy archive (data.npz), or image folders data/<class>/; or each as train and test"


@dataclass(frozen=True)
class Files:
    """The files of one data set: one undivided, or a train and a test set."""

    paths: tuple[Path, ...]

    @property
    def is_table(self) -> bool:
        """Whether they are tables."""
        return self.paths[0].is_file() and is_table(self.paths[0])

    @property
    def is_archive(self) -> bool:
        """Whether they are NumPy archives."""
        return self.paths[0].suffix == ".npz"


def own(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    classes: list[str | int] | None = None,
    regression: bool = False,
    image_size: int | None = None,
    grayscale: bool = False,
    test_share: float = TEST_SHARE,
    table: Mapping[str, Any] | None = None,
    client: int = 0,
    untrained: list[str | int] | None = None,
    scale: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read the data set of one folder, or of one file that is a table.

    The folder holds a train and a test set, or one undivided set named data, of which `test_share` is tested on:
    tables (``train.csv``; also ``.tsv``, ``.txt``, ``.data``, gzipped or not), archives with arrays x and y
    (``train.npz``), or folders of images (``train/<class>/``). A single table may have any name.

    Parameters
    ----------
    classes
        Names of the classes in the order of their labels. Archives without it have integers from 0 as targets.
    regression
        Archives: targets are values and no classes, as rows of several numbers always are.
    image_size, grayscale
        Images are resized to so many pixels in height and width, or must have one size; and read with one channel.
    table
        What the run declares of tables and, once the sites have agreed, how they are prepared: `task.table`.
    client
        Number of the client (`florets.task.randomness.client_number`): with the seed it draws the split.
    untrained
        Archives and images: classes that no site trains on, whose test samples are left out.
    scale
        Archives: mean and std by which inputs, and target_mean and target_std by which values, are standardised.
    """
    files = find_files(data_dir)
    if files.is_table:
        site = SiteTable.read(files.paths, table or {}, seed, client, test_share)
        preprocessing = site.preprocessing
        if preprocessing is None:
            # One table of all clients, in a simulation: it agrees with itself.
            found = agree(site.declared, {"": site.describe()}, _labels(classes, False))
            assert found.preprocessing is not None
            preprocessing = found.preprocessing
        return site.dataset(preprocessing)
    labels = _labels(classes, regression)
    images = ImageOptions(image_size, grayscale)
    train, test = _samples(files, labels, regression, images, test_share, generator(seed, 0, Purpose.DATA, client))
    if untrained:
        test = test.of(_seen(test.y, untrained, labels))
    return _dataset(train, test, regression, ArrayScale.of(scale))


def _samples(
    files: Files,
    labels: Sequence[str] | None,
    regression: bool,
    images: ImageOptions,
    test_share: float,
    rng: np.random.Generator,
) -> tuple[Samples, Samples]:
    """Return the training and the test set of archives or folders of images; see `own`."""

    def read(path: Path) -> Samples:
        if files.is_archive:
            return read_npz(path, labels, regression)
        links_inside(path.parent, path)
        return read_images(path, labels, images)

    parts = [read(path) for path in files.paths]
    if len(parts) == 1:
        y = parts[0].y
        rows = split_rows(y.astype(np.float64), None, test_share, rng, regression or y.ndim > 1, y.ndim == 1)
        parts = [parts[0].of(part) for part in rows]
    return parts[0], parts[1]


def _dataset(train: Samples, test: Samples, regression: bool, scale: ArrayScale) -> Dataset:
    regression = regression or train.y.ndim > 1
    num_outputs = 1 if regression else int(max(train.y.max(), test.y.max())) + 1
    # Values do not group samples, and a node's own data are not shared out by groups.
    groups = [np.zeros(len(part.y), dtype=np.int64) if regression else part.y for part in (train, test)]
    y_train, y_test = (scale.targets(part.y) if regression else part.y for part in (train, test))
    return Dataset(
        scale.inputs(train.x),
        y_train,
        scale.inputs(test.x),
        y_test,
        num_outputs,
        groups[0],
        groups[1],
        scaled=train.scaled,
        target_scale=scale.target_std if regression else 1.0,
    )


def describe(
    data_dir: Path | None, options: Mapping[str, Any], table: Mapping[str, Any], seed: int, client: int = 0
) -> Description:
    """Return the description of one site's data; `options` are those of `own`, `table` is what the run declares.

    Targets of an archive are values where the run says so, or they are no integers.
    """
    files = find_files(data_dir)
    if files.is_table:
        return SiteTable.read(files.paths, table, seed, client, options.get("test_share", TEST_SHARE)).describe()
    regression, classes = bool(options.get("regression")), options.get("classes")
    if files.is_archive and not regression and classes is None:
        _, y = read_arrays(files.paths[0], ("x", "y"))
        regression = y.ndim > 1 or (y.dtype.kind == "f" and bool(np.any(y != np.floor(y))))
    elif not files.is_archive and not classes:
        folders = [folder for path in files.paths for folder in path.iterdir()]
        classes = sorted({path.name for path in folders if path.is_dir() and not path.name.startswith(".")})
    labels, test_share = _labels(classes, regression), options.get("test_share", TEST_SHARE)
    images = ImageOptions(options.get("image_size"), options.get("grayscale", False))
    rng = generator(seed, 0, Purpose.DATA, client)
    train, test = _samples(files, labels, regression, images, test_share, rng)
    data = _dataset(train, test, regression, ArrayScale())
    n = len(data.x_train), len(data.x_test)
    named = () if regression else tuple(map(str, classes or range(data.num_outputs)))
    figures = _figures(train, regression)
    return Description(
        "archive" if files.is_archive else "images",
        sum(n),
        n[0],
        shape=data.input_shape,
        unseen=_unseen(data, options, labels),
        classes=named,
        targets=math.prod(train.y.shape[1:]) if train.y.ndim > 1 else 0,
        trained=() if regression else tuple(named[label] for label in np.unique(data.y_train)),
        are_pixels=not figures.get("is_real") and _are_pixels(data),
        **figures,
    )


def _unseen(data: Dataset, options: Mapping[str, Any], labels: Sequence[str] | None) -> int:
    """Return how many test samples are of a class that this site, or once they have agreed no site, trains on."""
    if data.y_train.dtype != np.int64:
        return 0
    if (untrained := options.get("untrained")) is None:
        return int((~np.isin(data.y_test, data.y_train)).sum())
    return len(data.y_test) - len(_seen(data.y_test, untrained, labels))


def _seen(y_test: TargetArray, untrained: Sequence[str | int], labels: Sequence[str] | None) -> NDArray[np.int64]:
    """Return the rows of test samples without those of classes that no site trains on."""
    kept = np.flatnonzero(~np.isin(y_test, [_label_of(name, labels) for name in untrained]))
    if not len(kept):
        raise ValueError(f"all {len(y_test)} test samples are of classes that no site trains on: give it others.")
    return kept


def _figures(train: Samples, regression: bool) -> dict[str, Any]:
    """Return means and sums of squares by which arrays are standardised, as fields of a description."""
    figures: dict[str, Any] = {"is_real": train.is_real}
    if len(train.x) < FEWEST:
        return figures
    if train.is_real and train.x.shape[1] <= MOST_FEATURES:
        x = train.x.astype(np.float64)
        middle = x.mean(axis=0)
        figures["feature_means"] = tuple(middle.tolist())
        figures["feature_m2"] = tuple(((x - middle) ** 2).sum(axis=0).tolist())
    if regression and train.y.ndim == 1:
        mean, distinct = float(train.y.mean()), len(np.unique(train.y))
        m2 = float(((train.y - mean) ** 2).sum())
        whole = bool((train.y == np.floor(train.y)).all())
        figures["target"] = TargetSummary(
            "y", numeric=True, whole=whole, known=len(train.y), distinct=distinct, mean=mean, m2=m2
        )
    return figures


def _labels(classes: Sequence[str | int] | None, regression: bool) -> list[str] | None:
    if classes is not None and regression:
        raise ValueError("task.data_options.regression=true: a regression has no classes; set classes=null.")
    labels = None if classes is None else [str(name) for name in classes]
    check_ranges("data", ("classes", labels, labels is None or len(set(labels)) == len(labels), "different names"))
    return labels


def find_files(data: Path | None) -> Files:
    """Return the files of the one data set that a folder holds, or that is this file; else raise ValueError."""
    if data is not None and data.is_file() and is_table(data):
        return Files((inside(data.parent, data),))
    if data is None or not data.is_dir():
        raise ValueError(f"the data folder {data} does not exist: give as data-dir the folder of {_FORMS}.")
    found: dict[str, tuple[Path, ...]] = {}
    for suffix in (".npz", *SUFFIXES, ""):
        for names in (("train", "test"), ("data",)):
            paths = tuple(data / f"{name}{suffix}" for name in names)
            there = [path for path in paths if (path.is_file() if suffix else path.is_dir())]
            if there and len(there) < len(paths):
                missing = next(path for path in paths if path not in there)
                raise ValueError(
                    f"{data.name} has {there[0].name} but no {missing.name}: give both, or one undivided set as "
                    f"data{suffix}."
                )
            for path in there:
                inside(data, path)
            if there:
                found[" and ".join(path.name for path in there)] = paths
    if not found:
        tables = sorted(inside(data, path) for path in data.iterdir() if path.is_file() and is_table(path))
        if len(tables) == 1:
            return Files((tables[0],))
        found = {path.name: (path,) for path in tables}
    if not found:
        raise ValueError(f"{data.name} holds no data set: give {_FORMS}.")
    if len(found) > 1:
        raise ValueError(
            f"{data.name} holds several data sets ({'; '.join(found)}): keep one data set for each node."
        )
    return Files(next(iter(found.values())))


def holds_data(data: Path) -> bool:
    """Return whether a folder holds one data set, or is a table."""
    try:
        find_files(data)
    except ValueError:
        return False
    return True


def _label_of(name: str | int, labels: Sequence[str] | None) -> int:
    """Return the label of a class; without names it is its name."""
    if labels is None:
        return int(name)
    return labels.index(str(name)) if str(name) in labels else -1
