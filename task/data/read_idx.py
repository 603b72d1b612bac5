"""Reads MNIST's own file format, IDX: a few bytes that say type and shape, then the values."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.vision import check_folder

_MAGIC = b"\x00\x00\x08"
"""Two zeros, and the number of the type of unsigned bytes."""

_FILES = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")}
_FILES["test"] = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx_set(
    name: str, data_dir: Path | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Read a data set in MNIST's form from where torchvision keeps it, ``<data_dir>/<name>/raw``.

    Returns
    -------
    tuple
        Train images uint8 (n, 28, 28), train labels int64 (n,), test images, test labels.

    Raises
    ------
    ValueError
        If no folder is given, or the files are missing or damaged.

    Deviation: torchvision reads the same files, but its import takes 2 s of processor time.
    """
    folder, remedy = check_folder(name, data_dir, f"{name}/raw")
    try:
        parts = [(_read(folder / images, (28, 28)), _read(folder / labels, ())) for images, labels in _FILES.values()]
    except (OSError, ValueError) as error:
        raise ValueError(f"data {name}: the files under {folder} cannot be read ({error}). {remedy}") from error
    (x_train, y_train), (x_test, y_test) = parts
    return x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64)


def _read(path: Path, sample: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the samples (n, *sample) of one file."""
    with path.open("rb") as file:
        header = file.read(4 * (2 + len(sample)))
        whole = len(header) == 4 * (2 + len(sample))
        shape = tuple(np.frombuffer(header, dtype=">u4", offset=4).tolist()) if whole else ()
        if header[:4] != _MAGIC + bytes([1 + len(sample)]) or shape[1:] != sample:
            raise ValueError(f"{path.name} is no IDX file of unsigned bytes (n{''.join(f', {n}' for n in sample)})")
        values = np.fromfile(file, dtype=np.uint8)
    if len(values) != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path.name} holds {len(values)} values, but says {' x '.join(map(str, shape))}")
    return values.reshape(shape)
