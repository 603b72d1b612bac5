"""CIFAR-10 and CIFAR-100."""

from pathlib import Path
from typing import Literal

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.data.pixels import Pixels
from florets.task.data.vision import pool, read
from florets.task.registry import register_data

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

    The files are torchvision's, under ``<data_dir>/cifar-10-batches-py``. `seed` and `num_clusters` are not used.
    With `pooled` all 60,000 are one pool; see `florets.task.data.mnist`.

    These files, and those of CIFAR-100, are pickles, the only ones that the project reads. torchvision first checks
    each against its published MD5, for which no second preimage is known.

    Deviation: the published CLoVE code feeds raw bytes, 0 to 255; networks train better on [0, 1].

    Raises
    ------
    ValueError
        If the files are missing or damaged.
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
    pooled
        See `cifar10`.

    Raises
    ------
    ValueError
        If the files are missing or damaged.
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
