"""CIFAR-10. The one file that imports torchvision, for its readers."""

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, Pixels, pooled
from florets.task.data.files import PublicFiles
from florets.task.imported import with_torchvision


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


def cifar10(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load CIFAR-10: 50,000 train and 10,000 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are torchvision's, under ``<data_dir>/cifar-10-batches-py``.

    These files are pickles, the only ones that the project reads. torchvision first checks each against its published
    MD5, for which no second preimage is known.

    Deviation: the published CLoVE code feeds raw bytes, 0 to 255; networks train better on [0, 1].
    """
    x_train, y_train, x_test, y_test = read("CIFAR10", data_dir, "cifar-10-batches-py")
    train, test = (Pixels(images.transpose(0, 3, 1, 2)) for images in (x_train, x_test))
    data = Dataset(train, y_train, test, y_test, num_outputs=10)
    return pool(data) if pooled else data
