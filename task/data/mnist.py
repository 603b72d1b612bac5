"""MNIST, and Fashion-MNIST which has the same form."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, FloatArray
from florets.task.data.read_idx import read_idx_set
from florets.task.data.vision import pool
from florets.task.registry import register_data

SIDE = 28


@register_data("mnist")
def mnist(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    side: int = 28,
    standardise: bool = False,
    pooled: bool = False,
) -> Dataset:
    """Load MNIST: 60,000 train and 10,000 test digits (n, 1, side, side), pixels in [0, 1] unless standardised.

    The files are torchvision's, under ``<data_dir>/MNIST/raw``. `seed` and `num_clusters` are not used.

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


@register_data("fashion_mnist")
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


def _dataset(class_name: str, data_dir: Path | None, side: int, standardise: bool, pooled: bool) -> Dataset:
    if not 1 <= side <= SIDE or SIDE % side:
        raise ValueError(f"task.data_options.side={side} must be a divisor of {SIDE}, such as 14.")
    x_train, y_train, x_test, y_test = read_idx_set(class_name, data_dir)
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
