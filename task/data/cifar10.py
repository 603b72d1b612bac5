"""CIFAR-10."""

from pathlib import Path

from florets.task.data.dataset import Dataset
from florets.task.data.pixels import Pixels
from florets.task.data.vision import pool, read
from florets.task.registry import register_data


@register_data("cifar10", files=True)
def cifar10(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load CIFAR-10: 50,000 train and 10,000 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are torchvision's, under ``<data_dir>/cifar-10-batches-py``. `seed` and `num_clusters` are not used.
    With `pooled` all 60,000 are one pool; see `florets.task.data.mnist`.

    These files are pickles, the only ones that the project reads. torchvision first holds each to its published MD5,
    and nobody knows how to make another file of a given MD5.

    Deviation: the published CLoVE code feeds raw bytes, 0 to 255; networks train better on [0, 1].

    Raises
    ------
    ValueError
        If the files are missing or damaged.
    """
    x_train, y_train, x_test, y_test = read("CIFAR10", data_dir, "cifar-10-batches-py")

    train, test = (Pixels(images.transpose(0, 3, 1, 2)) for images in (x_train, x_test))
    data = Dataset(train, y_train, test, y_test, num_outputs=10)
    return pool(data) if pooled else data
