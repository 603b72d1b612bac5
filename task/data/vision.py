"""The one place that imports torchvision, of which only the readers of downloaded data sets are used."""

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset
from florets.task.data.pixels import pooled
from florets.task.operators import with_torchvision


def torchvision_datasets() -> ModuleType:
    """Import ``torchvision.datasets``, even where torchvision's compiled operators do not fit the torch beside them.

    Raises
    ------
    ValueError
        If torchvision cannot be imported for another reason.
    """
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


def check_folder(class_name: str, data_dir: Path | None, folder: str) -> tuple[Path, str]:
    """Return the folder of a data set's files, and how it is filled.

    Parameters
    ----------
    class_name
        Of the class in ``torchvision.datasets``.
    data_dir
        Folder in which `folder` lies.
    folder
        Where torchvision keeps the set's files.

    Raises
    ------
    ValueError
        If it is not there.
    """
    remedy = (
        f"Give the folder that holds {folder}/ as data_dir=<folder>; torchvision's "
        f"datasets.{class_name}(root='<folder>', download=True) fills it."
    )
    if data_dir is None:
        raise ValueError(f"data {class_name} needs files, but data_dir is empty. {remedy}")
    if not (data_dir / folder).is_dir():
        raise ValueError(f"data {class_name}: {data_dir} has no folder {folder}/. {remedy}")
    return data_dir / folder, remedy


def read(
    class_name: str, data_dir: Path | None, folder: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Read a torchvision data set whole, straight from its files.

    Torchvision's own way gives one PIL image at a time; the arrays behind it are whole.

    Parameters
    ----------
    class_name, data_dir, folder
        See `check_folder`.

    Returns
    -------
    tuple
        Train images uint8 (n, ...), train labels int64 (n,), test images, test labels.

    Raises
    ------
    ValueError
        If no folder is given, or the files are missing or damaged.
    """
    whole, remedy = check_folder(class_name, data_dir, folder)
    make: Callable[..., Any] = getattr(torchvision_datasets(), class_name)
    arrays: list[NDArray[Any]] = []
    for train in (True, False):
        try:
            with warnings.catch_warnings():
                # NumPy 2.4 warns about how CIFAR-10's pickles of 2009 spell a dtype; the values are right.
                warnings.simplefilter("ignore")
                part = make(root=str(data_dir), train=train, download=False)
        except (RuntimeError, OSError, EOFError, ValueError) as error:
            raise ValueError(
                f"data {class_name}: the files under {whole} cannot be read ({error}). {remedy}"
            ) from error
        arrays += [np.asarray(part.data, dtype=np.uint8), np.asarray(part.targets, dtype=np.int64)]
    return arrays[0], arrays[1], arrays[2], arrays[3]


def pool(data: Dataset) -> Dataset:
    """Return all samples as one pool, train part first, for partitions that split it on each client."""
    x, y = pooled(data.x_train, data.x_test), np.concatenate([data.y_train, data.y_test])
    return Dataset(x, y, x, y, num_outputs=data.num_outputs)
