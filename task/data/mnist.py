"""MNIST, Fashion-MNIST which has the same form, and both as one data set."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, FloatArray
from florets.task.data.idx import read_idx_set
from florets.task.data.pixels import Pixels
from florets.task.data.vision import pool
from florets.task.registry import register_data

SIDE = 28
_PREFIXES = ("train", "t10k")


@register_data("mnist", files=True)
def mnist(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    side: int = 28,
    standardise: bool = False,
    pooled: bool = False,
) -> Dataset:
    """Load MNIST: 60,000 train and 10,000 test digits (n, 1, side, side), pixels in [0, 1] unless standardised.

    The files are torchvision's, under ``<data_dir>/MNIST/raw``, gzipped or not. `seed` and `num_clusters` are not
    used.

    Parameters
    ----------
    side
        Pixels of an edge, a divisor of 28: pixels of the original are averaged over blocks.
    standardise
        Whether the mean of all train pixels is taken off, and what remains divided by their standard deviation.
    pooled
        Whether all 70,000 are one pool, which a partition such as ``rotation_blocks`` splits on each client.

    Raises
    ------
    ValueError
        If the files are missing or damaged, or `side` is no divisor of 28.
    """
    return _dataset("MNIST", data_dir, side, standardise, pooled)


@register_data("fashion_mnist", files=True)
def fashion_mnist(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    side: int = 28,
    standardise: bool = False,
    pooled: bool = False,
) -> Dataset:
    """Load Fashion-MNIST, in the form of `mnist` and with its options, from ``<data_dir>/FashionMNIST/raw``.

    Raises
    ------
    ValueError
        If the files are missing or damaged, or `side` is no divisor of 28.
    """
    return _dataset("FashionMNIST", data_dir, side, standardise, pooled)


@register_data("mnist_and_fashion", files=True)
def mnist_and_fashion(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    side: int = 28,
    standardise: bool = False,
    shared_labels: bool = False,
) -> Dataset:
    """Load MNIST and Fashion-MNIST as one data set of 120,000 train and 20,000 test images.

    A sample's group is the set that it comes from (0: MNIST), so the partition ``by_class`` gives each cluster one.

    Parameters
    ----------
    data_dir, seed, num_clusters, side, standardise
        See `mnist`; either set is standardised by itself.
    shared_labels
        Whether both have the labels 0 to 9, so that a label means two things; otherwise Fashion-MNIST has 10 to 19.

    Raises
    ------
    ValueError
        If the files are missing or damaged, or `side` is no divisor of 28.
    """
    digits, clothes = (_dataset(name, data_dir, side, standardise, False) for name in ("MNIST", "FashionMNIST"))
    first = 0 if shared_labels else digits.num_outputs
    groups = [
        np.repeat(np.arange(2), [len(a), len(b)])
        for a, b in ((digits.y_train, clothes.y_train), (digits.y_test, clothes.y_test))
    ]
    return Dataset(
        np.concatenate([digits.x_train, clothes.x_train]),
        np.concatenate([digits.y_train, clothes.y_train + first]),
        np.concatenate([digits.x_test, clothes.x_test]),
        np.concatenate([digits.y_test, clothes.y_test + first]),
        num_outputs=first + clothes.num_outputs,
        group_train=groups[0],
        group_test=groups[1],
    )


def _dataset(class_name: str, data_dir: Path | None, side: int, standardise: bool, pooled: bool) -> Dataset:
    if not 1 <= side <= SIDE or SIDE % side:
        raise ValueError(f"task.data_options.side={side} must be a divisor of {SIDE}, such as 14.")
    remedy = f"torchvision's datasets.{class_name}(root='<data_dir>', download=True) fills it."
    x_train, y_train, x_test, y_test = read_idx_set(class_name, data_dir, f"{class_name}/raw", _PREFIXES, remedy)
    for images in (x_train, x_test):
        if images.shape[1:] != (SIDE, SIDE):
            found = " x ".join(map(str, images.shape[1:]))
            raise ValueError(
                f"data {class_name}: its files hold images of {found} pixels, and it needs 28 x 28. {remedy}"
            )
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
