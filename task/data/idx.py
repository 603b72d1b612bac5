"""Images and labels in IDX files, the form of MNIST and of the sets made after it; gzipped or not."""

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.task.data.files import folder_of, reading

_LAYOUT = "IDX files of unsigned bytes (names ending in -images-idx3-ubyte and -labels-idx1-ubyte), gzipped or not"
Parts = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]


def read_idx_set(data: str, data_dir: Path | None, folder: str, prefixes: tuple[str, str], remedy: str) -> Parts:
    """Read a set of images with labels.

    Parameters
    ----------
    data
        Its name, for messages.
    data_dir, folder
        The files lie in ``<data_dir>/<folder>``.
    prefixes
        How the names of the train and of the test files begin.
    remedy
        Where the files come from.

    Returns
    -------
    tuple
        Train images uint8 (n, rows, columns), train labels int64 (n,), test images, test labels.

    Raises
    ------
    ValueError
        If a file is missing or damaged, or numbers of images and labels differ.
    """
    where = folder_of(data, data_dir, (folder,), _LAYOUT, remedy)
    arrays: list[NDArray[np.uint8]] = []
    for prefix in prefixes:
        images = _read(data, where / f"{prefix}-images-idx3-ubyte", 3, remedy)
        labels = _read(data, where / f"{prefix}-labels-idx1-ubyte", 1, remedy)
        if len(images) != len(labels):
            raise ValueError(
                f"data {data}: {where} has {len(images)} images but {len(labels)} labels whose names begin with "
                f"{prefix}: one of the files is another set's or cut short. {remedy}"
            )
        arrays += [images, labels]
    return arrays[0], arrays[1].astype(np.int64), arrays[2], arrays[3].astype(np.int64)


def _read(data: str, path: Path, dimensions: int, remedy: str) -> NDArray[np.uint8]:
    """Read one file, or the gzipped one beside where it would be."""
    packed = path.with_name(f"{path.name}.gz")
    path = path if path.is_file() or not packed.is_file() else packed
    with reading(data, path, _LAYOUT, remedy):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        # Two zero bytes, the type of the numbers (8: unsigned bytes), how many dimensions, then the length of each.
        if content[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(f"it does not begin as an IDX file of {dimensions} dimensions")
        head = 4 + 4 * dimensions
        shape = np.frombuffer(content[4:head], dtype=">u4").astype(np.int64)
        if len(shape) != dimensions or len(content) - head != shape.prod():
            raise ValueError("its length is not the one that it begins with")
        return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
