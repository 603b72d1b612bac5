"""MNIST, and Fashion-MNIST which has the same form."""

from pathlib import Path

import numpy as np

from task.data.dataset import Dataset, FloatArray
from task.data.vision import pool, read
from task.registry import register_data


@register_data("mnist")
def mnist(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load MNIST: 60,000 train and 10,000 test digits (n, 1, 28, 28), pixels in [0, 1], not normalised further.

    The files are torchvision's, under ``<data_dir>/MNIST/raw``. `seed` and `num_clusters` are not used. With `pooled`
    all 70,000 are one pool, which a partition such as ``rotation_blocks`` splits on each client.

    Raises
    ------
    ValueError
        If the files are missing or damaged.
    """
    return _dataset("MNIST", data_dir, pooled)


@register_data("fashion_mnist")
def fashion_mnist(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load Fashion-MNIST, in the form of `mnist`, from ``<data_dir>/FashionMNIST/raw``.

    Raises
    ------
    ValueError
        If the files are missing or damaged.
    """
    return _dataset("FashionMNIST", data_dir, pooled)


def _dataset(class_name: str, data_dir: Path | None, pooled: bool) -> Dataset:
    x_train, y_train, x_test, y_test = read(class_name, data_dir, f"{class_name}/raw")

    def scaled(images: np.ndarray) -> FloatArray:
        return images.astype(np.float32)[:, None] / np.float32(255)

    data = Dataset(scaled(x_train), y_train, scaled(x_test), y_test, num_outputs=10)
    return pool(data) if pooled else data
