"""CIFAR-10. The one file that imports torchvision, for its readers."""

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, Pixels, pool
from florets.task.data.files import PublicFiles
from florets.task.imported import with_torchvision


def torchvision_datasets() -> ModuleType:
    """Import ``torchvision.datasets``, even where its compiled operators do not fit the torch that is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return with_torchvision(lambda: importlib.import_module("torchvision.datasets"))
        except (ImportError, RuntimeError) as error:
            raise ValueError(f"torchvision is needed to read CIFAR-10, and cannot be imported: {error}") from error


_FILES = PublicFiles(
    "CIFAR10",
    ("cifar-10-batches-py",),
    "the files of torchvision",
    "torchvision's datasets.CIFAR10(root='<folder>', download=True) fills it.",
)


def cifar10(data_dir: Path | None, seed: int, num_clusters: int, pooled: bool = False) -> Dataset:
    """Load CIFAR-10: 50,000 train and 10,000 test images (n, 3, 32, 32), pixels in [0, 1].

    The files are torchvision's, under ``<data_dir>/cifar-10-batches-py``.

    These files are pickles, the only ones that the project reads. torchvision first checks each against its published
    MD5, for which no second preimage is known.

    Deviation: the published CLoVE code feeds raw bytes, 0 to 255; networks train better on [0, 1].
    """
    whole = _FILES.folder(data_dir)
    make: Callable[..., Any] = torchvision_datasets().CIFAR10
    x, y = list[Pixels](), list[NDArray[np.int64]]()
    for train in (True, False):
        with warnings.catch_warnings():
            # NumPy 2.4 warns about how the pickles of 2009 spell a dtype; the values are right.
            warnings.simplefilter("ignore")
            try:
                part = make(root=str(whole.parent), train=train, download=False)
            except (RuntimeError, OSError, EOFError, ValueError) as error:
                raise _FILES.error(f"the files under {whole} cannot be read ({error})") from error
        # Whole: torchvision's own way gives one image at a time.
        x.append(Pixels(np.asarray(part.data, dtype=np.uint8).transpose(0, 3, 1, 2)))
        y.append(np.asarray(part.targets, dtype=np.int64))
    data = Dataset(x[0], y[0], x[1], y[1], num_outputs=10)
    return pool(data) if pooled else data
