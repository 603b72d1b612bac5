"""SVHN: digits of house numbers."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, IntArray
from florets.task.data.files import folder_of, reading
from florets.task.data.pixels import Pixels
from florets.task.data.read_mat import read_mat
from florets.task.data.vision import pool
from florets.task.registry import register_data

_LAYOUT = "train_32x32.mat and test_32x32.mat, each with X (32, 32, 3, n) and y (n, 1)"
_REMEDY = "torchvision's datasets.SVHN(root='<data_dir>/svhn', split='train', download=True), and 'test', fills it."


@register_data("svhn", files=True)
def svhn(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load SVHN's cropped digits: 73,257 train and 26,032 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are the published ones, in ``<data_dir>/svhn``. `seed` and `num_clusters` are not used. With `pooled`
    all are one pool; see `florets.task.data.mnist`.

    Raises
    ------
    ValueError
        If a file is missing or does not have this form.
    """
    folder = folder_of("svhn", data_dir, ("svhn", "SVHN"), _LAYOUT, _REMEDY)
    (x_train, y_train), (x_test, y_test) = (_read(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    data = Dataset(Pixels(x_train), y_train, Pixels(x_test), y_test, num_outputs=10)
    return pool(data) if pooled else data


def _read(path: Path) -> tuple[NDArray[np.uint8], IntArray]:
    images, labels = read_mat("svhn", path, ("X", "y"), _LAYOUT, _REMEDY)
    with reading("svhn", path, _LAYOUT, _REMEDY):
        if images.dtype != np.uint8 or images.shape != (32, 32, 3, labels.size):
            raise ValueError(f"X holds {images.dtype} of shape {images.shape}, y {labels.shape}")
        # A 0 has the label 10.
        return images.transpose(3, 2, 0, 1), labels.ravel().astype(np.int64) % 10
