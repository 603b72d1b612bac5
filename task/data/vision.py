"""Photographs: CIFAR-10, CIFAR-100, SVHN, Tiny ImageNet. The one file that imports torchvision, for its readers."""

import importlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, IntArray, Pixels, pooled
from florets.task.data.files import PublicFiles
from florets.task.data.image_files import ImageOptions, images_below, is_hidden, read_image
from florets.task.imported import with_torchvision
from florets.task.registry import register_data


def torchvision_datasets() -> ModuleType:
    """Import ``torchvision.datasets``, even where its compiled operators do not fit the torch that is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return with_torchvision(lambda: importlib.import_module("torchvision.datasets"))
        except RuntimeError as error:
            raise ValueError(f"torchvision cannot be imported: {error}") from error
        except ImportError as error:
            raise ValueError(
                f"torchvision is needed to read this data set: pip install torchvision ({error})"
            ) from error


def read(
    class_name: str, data_dir: Path | None, folder: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Read a torchvision data set whole, straight from its files.

    Torchvision's own way gives one PIL image at a time; the arrays behind it are whole.

    Parameters
    ----------
    class_name
        Of the class in ``torchvision.datasets``.
    data_dir, folder
        Torchvision keeps the set's files in ``<data_dir>/<folder>``.

    Returns
    -------
    tuple
        Train images uint8 (n, ...), train labels int64 (n,), test images, test labels.
    """
    fills = f"torchvision's datasets.{class_name}(root='<folder>', download=True) fills it."
    files = PublicFiles(class_name, (folder,), "the files of torchvision", fills)
    whole = files.folder(data_dir)
    make: Callable[..., Any] = getattr(torchvision_datasets(), class_name)
    arrays: list[NDArray[Any]] = []
    for train in (True, False):
        try:
            with warnings.catch_warnings():
                # NumPy 2.4 warns about how CIFAR-10's pickles of 2009 spell a dtype; the values are right.
                warnings.simplefilter("ignore")
                part = make(root=str(whole.parent), train=train, download=False)
        except (RuntimeError, OSError, EOFError, ValueError) as error:
            raise files.error(f"the files under {whole} cannot be read ({error})") from error
        arrays += [np.asarray(part.data, dtype=np.uint8), np.asarray(part.targets, dtype=np.int64)]
    return arrays[0], arrays[1], arrays[2], arrays[3]


def pool(data: Dataset) -> Dataset:
    """Return all samples as one pool, train part first, for partitions that split it on each client."""
    x, y = pooled(data.x_train, data.x_test), np.concatenate([data.y_train, data.y_test])
    return Dataset(x, y, x, y, num_outputs=data.num_outputs)


_COARSE_OF_FINE = np.array([
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15,
    0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17,
    10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19,
    18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
])  # fmt: skip
"""Superclass of each of the 100 classes, both in the order of their names; torchvision reads the classes alone."""


@register_data("cifar10", files=True)
def cifar10(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load CIFAR-10: 50,000 train and 10,000 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are torchvision's, under ``<data_dir>/cifar-10-batches-py``.

    These files, and those of CIFAR-100, are pickles, the only ones that the project reads. torchvision first checks
    each against its published MD5, for which no second preimage is known.

    Deviation: the published CLoVE code feeds raw bytes, 0 to 255; networks train better on [0, 1].
    """
    data = _dataset("CIFAR10", data_dir, "cifar-10-batches-py", 10)
    return pool(data) if pooled else data


@register_data("cifar100", files=True)
def cifar100(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    labels: Literal["fine", "coarse"] = "fine",
    pooled: bool = False,
) -> Dataset:
    """Load CIFAR-100, in the form of `cifar10`, from ``<data_dir>/cifar-100-python``.

    Parameters
    ----------
    labels
        ``fine``: the 100 classes. ``coarse``: their 20 superclasses.
    """
    data = _dataset("CIFAR100", data_dir, "cifar-100-python", 100)
    if labels == "coarse":
        train, test = (_COARSE_OF_FINE[fine] for fine in (data.y_train, data.y_test))
        data = Dataset(data.x_train, train, data.x_test, test, num_outputs=20)
    return pool(data) if pooled else data


def _dataset(class_name: str, data_dir: Path | None, folder: str, classes: int) -> Dataset:
    x_train, y_train, x_test, y_test = read(class_name, data_dir, folder)
    train, test = (Pixels(images.transpose(0, 3, 1, 2)) for images in (x_train, x_test))
    return Dataset(train, y_train, test, y_test, num_outputs=classes)


_SVHN = PublicFiles(
    "svhn",
    ("svhn", "SVHN"),
    "train_32x32.mat and test_32x32.mat, each with X (32, 32, 3, n) and y (n, 1)",
    "torchvision's datasets.SVHN(root='<data_dir>/svhn', split='train', download=True), and 'test', fills it.",
)


@register_data("svhn", files=True)
def svhn(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load SVHN's cropped digits: 73,257 train and 26,032 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are the published ones, in ``<data_dir>/svhn``.
    """
    folder = _SVHN.folder(data_dir)
    (x_train, y_train), (x_test, y_test) = (_read_svhn(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    data = Dataset(Pixels(x_train), y_train, Pixels(x_test), y_test, num_outputs=10)
    return pool(data) if pooled else data


def _read_svhn(path: Path) -> tuple[NDArray[np.uint8], IntArray]:
    images, labels = _SVHN.read_mat(path, "X", "y")
    with _SVHN.reading(path):
        if images.dtype != np.uint8 or images.shape != (32, 32, 3, labels.size):
            raise ValueError(f"X holds {images.dtype} of shape {images.shape}, y {labels.shape}")
        # A 0 has the label 10.
        return images.transpose(3, 2, 0, 1), labels.ravel().astype(np.int64) % 10


_TINY_IMAGENET = PublicFiles(
    "tiny_imagenet",
    ("tiny-imagenet-200", "tiny_imagenet"),
    "train/<class>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt (file, class, box)",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip unpacks to it.",
)


@register_data("tiny_imagenet", files=True)
def tiny_imagenet(
    data_dir: Path | None, seed: int, num_clusters: int, image_size: int = 64, pooled: bool = False
) -> Dataset:
    """Load Tiny ImageNet: 100,000 train and 10,000 test images (n, 3, 64, 64), pixels in [0, 1].

    The files lie in ``<data_dir>/tiny-imagenet-200``. Classes are in the order of their folders' names. The test set
    is the validation images: those of the published test set have no labels.

    Parameters
    ----------
    image_size
        Pixels in height and width; images of another size are resized.
    """
    options = ImageOptions(image_size)
    folder = _TINY_IMAGENET.folder(data_dir)
    with _TINY_IMAGENET.reading(folder / "train"):
        classes = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir() and not is_hidden(path))
    train = [(file, label) for label, name in enumerate(classes) for file in images_below(folder / "train" / name)]
    test = _validation_set(folder / "val", classes)
    if not (train and test):
        raise _TINY_IMAGENET.error(f"{folder} has no images")
    x_train, x_test = (_photograph([file for file, _ in part], options) for part in (train, test))
    y_train, y_test = (np.array([label for _, label in part], dtype=np.int64) for part in (train, test))
    data = Dataset(x_train, y_train, x_test, y_test, num_outputs=len(classes))
    return pool(data) if pooled else data


def _validation_set(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Return the files of the validation images, and their labels."""
    path = folder / "val_annotations.txt"
    labels = {name: label for label, name in enumerate(classes)}
    files = {file.name: file for file in images_below(folder / "images")}
    with _TINY_IMAGENET.reading(path):
        rows = [line.split("\t")[:2] for line in path.read_text(encoding="utf-8").splitlines() if line]
        if wrong := sum(len(row) < 2 or row[0] not in files or row[1] not in labels for row in rows):
            raise ValueError(f"{wrong} of its {len(rows)} lines name no image of val/images/ with a class of train/")
    return [(files[name], labels[label]) for name, label in rows]


def _photograph(files: Sequence[Path], options: ImageOptions) -> Pixels:
    """Return images as bytes: as floats they would take 5 GB."""
    size = options.image_size
    assert size is not None
    found = np.empty((len(files), 3, size, size), dtype=np.uint8)
    for number, file in enumerate(files):
        # On a real node the text reaches the server: it names no file.
        shown = f"data tiny_imagenet: image {number + 1} of {len(files)}, by its class and name,"
        found[number] = np.rint(255 * read_image(file, shown, options).pixels)
    return Pixels(found)
