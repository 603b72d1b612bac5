"""Public images: scikit-learn's digits, MNIST, Fashion-MNIST, EMNIST, FEMNIST and CIFAR-10."""

import gzip
import importlib
import json
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, FloatArray, Pixels, pool
from florets.task.data.files import PublicFiles
from florets.task.imported import with_torchvision
from florets.task.randomness import Purpose, generator
from florets.task.registry import check_ranges

SIDE = 28
_PREFIXES = ("train", "t10k")


def mnist(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    side: int = 28,
    standardise: bool = False,
    pooled: bool = False,
) -> Dataset:
    """Load MNIST: 60,000 train and 10,000 test digits (n, 1, side, side), pixels in [0, 1] unless standardised.

    The files are torchvision's, under ``<data_dir>/MNIST/raw``, gzipped or not. `side` is a divisor of 28: pixels of
    the original are averaged over blocks.
    """
    return _dataset("MNIST", data_dir, side, standardise, pooled)


def fashion_mnist(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load Fashion-MNIST, in the form of `mnist`, from ``<data_dir>/FashionMNIST/raw``."""
    return _dataset("FashionMNIST", data_dir)


def mnist_and_fashion(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load MNIST and Fashion-MNIST as one data set of 120,000 train and 20,000 test images, or one pool.

    Both have the labels 0 to 9, so that a label means two things. A sample's group is the set that it comes from (0:
    MNIST), so the partition ``by_class`` gives each cluster one.
    """
    digits, clothes = (_dataset(name, data_dir, pooled=pooled) for name in ("MNIST", "FashionMNIST"))
    of_train = np.repeat([0, 1], [len(digits.y_train), len(clothes.y_train)])
    of_test = np.repeat([0, 1], [len(digits.y_test), len(clothes.y_test)])
    x_train = np.concatenate([digits.x_train, clothes.x_train])
    return Dataset(
        x_train,
        np.concatenate([digits.y_train, clothes.y_train]),
        x_train if pooled else np.concatenate([digits.x_test, clothes.x_test]),
        np.concatenate([digits.y_test, clothes.y_test]),
        num_outputs=10,
        group_train=of_train,
        group_test=of_test,
    )


def _dataset(
    class_name: str, data_dir: Path | None, side: int = SIDE, standardise: bool = False, pooled: bool = False
) -> Dataset:
    check_ranges("data", ("side", side, side in (1, 2, 4, 7, 14, SIDE), f"a divisor of {SIDE}, such as 14"))
    x_train, y_train, x_test, y_test = read_idx_set(class_name, data_dir, _PREFIXES)
    for images in (x_train, x_test):
        if images.shape[1:] != (SIDE, SIDE):
            found = " x ".join(map(str, images.shape[1:]))
            raise _idx_files(class_name).error(f"its files hold images of {found} pixels, and it needs 28 x 28")
    if side == SIDE and not standardise:
        data = Dataset(Pixels(x_train[:, None]), y_train, Pixels(x_test[:, None]), y_test, num_outputs=10)
        return pool(data) if pooled else data
    train, test = _scaled(x_train, side), _scaled(x_test, side)
    if standardise:
        # In float64: 12 million pixels added up in float32 lose their last digits.
        mean, deviation = (np.float32(moment(train, dtype=np.float64)) for moment in (np.mean, np.std))
        for pixels in (train, test):
            pixels -= mean
            pixels /= deviation
    data = Dataset(train, y_train, test, y_test, num_outputs=10)
    return pool(data) if pooled else data


def _scaled(images: NDArray[np.uint8], side: int) -> FloatArray:
    """Return images (n, 28, 28) as (n, 1, side, side) in [0, 1]."""
    pixels: FloatArray = images.astype(np.float32).reshape(len(images), 1, SIDE, SIDE)
    # In place: a second array of all pixels would be a third of a run's memory.
    pixels /= np.float32(255)
    if side < SIDE:
        block = SIDE // side
        pixels = pixels.reshape(len(pixels), 1, side, block, side, block).mean(axis=(3, 5), dtype=np.float32)
    return pixels


# The split is part of the data set, like MNIST's: the same for every seed, so that seeds are comparable.
SPLIT_SEED = 1797
TEST_SHARE = 0.2


def digits(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load scikit-learn's digits, pixels in [0, 1], as images (n, 1, 8, 8).

    scikit-learn gives no split of its own. Of each class 20 % (rounded) of the images are the test set, drawn
    once with a fixed seed: 1,438 train and 359 test images.
    """
    # Copies: an owner of data may change them.
    x_train, y_train, x_test, y_test = (array.copy() for array in _split())
    return Dataset(x_train, y_train, x_test, y_test, num_outputs=10)


@cache
def _split() -> tuple[np.ndarray[Any, Any], ...]:
    """Return inputs and labels for training, then for testing; read once, as every job of a sweep asks for them."""
    # The file alone: scikit-learn takes a second to import.
    origin = getattr(find_spec("sklearn"), "origin", "")
    table = np.loadtxt(Path(origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    x = (table[:, :-1] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    y = table[:, -1].astype(np.int64)
    rng = np.random.default_rng(SPLIT_SEED)
    is_test = np.zeros(len(y), dtype=bool)
    for label in range(10):
        of_class = rng.permutation(np.flatnonzero(y == label))
        is_test[of_class[: round(TEST_SHARE * len(of_class))]] = True
    return x[~is_test], y[~is_test], x[is_test], y[is_test]


Parts = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]


def _idx_files(data: str) -> PublicFiles:
    options = ", split='byclass'" if data == "EMNIST" else ""
    return PublicFiles(
        data,
        (f"{data}/raw",),
        "IDX files of unsigned bytes (names ending in -images-idx3-ubyte and -labels-idx1-ubyte), gzipped or not",
        f"torchvision's datasets.{data}(root='<data_dir>'{options}, download=True) fills it.",
    )


def read_idx_set(data: str, data_dir: Path | None, prefixes: tuple[str, str]) -> Parts:
    """Read a set of images with labels from the files of torchvision."""
    files = _idx_files(data)
    where = files.folder(data_dir)
    arrays: list[NDArray[np.uint8]] = []
    for prefix in prefixes:
        images = _read_idx(files, where / f"{prefix}-images-idx3-ubyte", 3)
        labels = _read_idx(files, where / f"{prefix}-labels-idx1-ubyte", 1)
        if len(images) != len(labels):
            raise files.error(f"{where} has {len(images)} images but {len(labels)} labels of {prefix}")
        arrays += [images, labels]
    return arrays[0], arrays[1].astype(np.int64), arrays[2], arrays[3].astype(np.int64)


def _read_idx(files: PublicFiles, path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read one file, or the gzipped one in its place."""
    packed = path.with_name(f"{path.name}.gz")
    path = path if path.is_file() or not packed.is_file() else packed
    with files.reading(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        # Two zero bytes, the type of the numbers (8: unsigned bytes), how many dimensions, then the length of each.
        if content[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(f"its header is not that of an IDX file of {dimensions} dimensions")
        head = 4 + 4 * dimensions
        shape = np.frombuffer(content[4:head], dtype=">u4").astype(np.int64)
        if len(shape) != dimensions or len(content) - head != shape.prod():
            raise ValueError("its length differs from its header")
        return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


_CLASSES = 62
"""Digits, capitals and small letters."""


def emnist(
    data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False, most_samples: int | None = None
) -> Dataset:
    """Load EMNIST: upright images (n, 1, 28, 28), pixels in [0, 1].

    The split ``byclass`` has 697,932 train and 116,323 test images of 10 digits, 26 capitals and 26 small letters, of
    which `most_samples` are drawn by the run's seed. The files are torchvision's, under ``<data_dir>/EMNIST/raw``.

    Deviation: the files hold images mirrored along their diagonal, as torchvision gives them; here they are upright.
    """
    check_ranges("data", ("most_samples", most_samples, most_samples is None or most_samples >= 2, "at least 2"))
    names = ("emnist-byclass-train", "emnist-byclass-test")
    x_train, y_train, x_test, y_test = read_idx_set("EMNIST", data_dir, names)
    if most_samples is not None and most_samples < len(y_train) + len(y_test):
        drawn = generator(seed, 0, Purpose.DATA).permutation(len(y_train) + len(y_test))[:most_samples]
        mine, its = (
            np.sort(rows) for rows in (drawn[drawn < len(y_train)], drawn[drawn >= len(y_train)] - len(y_train))
        )
        x_train, y_train, x_test, y_test = x_train[mine], y_train[mine], x_test[its], y_test[its]
    train, test = (Pixels(images.transpose(0, 2, 1)[:, None]) for images in (x_train, x_test))
    data = Dataset(train, y_train, test, y_test, num_outputs=_CLASSES)
    return pool(data) if pooled else data


_FEMNIST = PublicFiles(
    "femnist",
    ("femnist", "FEMNIST"),
    "LEAF's train/*.json and test/*.json (users, and user_data with x and y of each)",
    "Make them by LEAF's data/femnist/preprocess.sh -s niid --sf 0.3 -k 0 -t sample, and copy its folders data/train "
    "and data/test there.",
)


def femnist(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load FEMNIST: images (n, 1, 28, 28) of 62 classes, pixels as the files have them, each with its writer.

    The partition ``natural`` makes a client of each writer. The files lie in ``<data_dir>/femnist``.

    Source: LEAF's FEMNIST, as CLoVE, App. D.1.4, takes it.
    """
    folder = _FEMNIST.folder(data_dir)
    (x_train, y_train, of_train), (x_test, y_test, of_test) = (_leaf(folder, name) for name in ("train", "test"))
    return Dataset(x_train, y_train, x_test, y_test, num_outputs=_CLASSES, owners_train=of_train, owners_test=of_test)


def _leaf(folder: Path, name: str) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.str_]]:
    """Return images, labels and writers of LEAF's train or test set."""
    paths = sorted((folder / name).glob("*.json"))
    if not paths:
        raise _FEMNIST.error(f"{folder} has no {name}/*.json")
    images, labels, writers = list[FloatArray](), list[NDArray[np.int64]](), list[NDArray[np.str_]]()
    for path in paths:
        with _FEMNIST.reading(path):
            content = json.loads(path.read_text(encoding="utf-8"))
            # One writer after the other: the lists of a whole file as numbers of Python take ten times the memory.
            for writer in content["users"]:
                of_writer: dict[str, Any] = content["user_data"].pop(writer)
                x = np.array(of_writer["x"], dtype=np.float32).reshape(-1, 1, SIDE, SIDE)
                y = np.array(of_writer["y"], dtype=np.int64)
                if len(x) != len(y) or not np.isfinite(x).all():
                    raise ValueError(f"writer {writer} has {len(y)} labels for {len(x)} images, or no finite pixels")
                images.append(x)
                labels.append(y)
                writers.append(np.repeat(np.array([writer], dtype=np.str_), len(y)))
    return np.concatenate(images), np.concatenate(labels), np.concatenate(writers)


def torchvision_datasets() -> ModuleType:
    """Import ``torchvision.datasets``, even where its compiled operators do not fit the torch that is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return with_torchvision(lambda: importlib.import_module("torchvision.datasets"))
        except (ImportError, RuntimeError) as error:
            raise ValueError(f"torchvision is needed to read CIFAR-10, and cannot be imported: {error}") from error


_CIFAR10 = PublicFiles(
    "CIFAR10",
    ("cifar-10-batches-py",),
    "the files of torchvision",
    "torchvision's datasets.CIFAR10(root='<folder>', download=True) fills it.",
)


def cifar10(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load CIFAR-10: 50,000 train and 10,000 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are torchvision's, under ``<data_dir>/cifar-10-batches-py``: pickles, each checked against its MD5
    first.

    Deviation: the published CLoVE code feeds raw bytes, 0 to 255; networks train better on [0, 1].
    """
    whole = _CIFAR10.folder(data_dir)
    make: Callable[..., Any] = torchvision_datasets().CIFAR10
    x, y = list[Pixels](), list[NDArray[np.int64]]()
    for train in (True, False):
        with warnings.catch_warnings():
            # NumPy 2.4 warns about how the pickles of 2009 spell a dtype; the values are right.
            warnings.simplefilter("ignore")
            try:
                part = make(root=str(whole.parent), train=train, download=False)
            except (RuntimeError, OSError, EOFError, ValueError) as error:
                raise _CIFAR10.error(f"the files under {whole} cannot be read ({error})") from error
        # Whole: torchvision's own way gives one image at a time.
        x.append(Pixels(np.asarray(part.data, dtype=np.uint8).transpose(0, 3, 1, 2)))
        y.append(np.asarray(part.targets, dtype=np.int64))
    data = Dataset(x[0], y[0], x[1], y[1], num_outputs=10)
    return pool(data) if pooled else data
