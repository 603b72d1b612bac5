"""`Pixels`: images kept as the bytes of their files and read as numbers in [0, 1], in a quarter of the memory."""

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray


class Pixels(NDArrayOperatorsMixin):
    """An array of float32 in [0, 1], (n, channels, height, width), whose entries are made when they are read.

    Clients are given some rows each, and nobody needs all of them at once. Whatever else a NumPy array can do is done
    with all of them, made for that one time.

    Parameters
    ----------
    values
        uint8 (n, channels, height, width); 255 stands for 1.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, values: NDArray[np.uint8]) -> None:
        self.values = np.ascontiguousarray(values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.values.ndim

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        """Return a part, float32."""
        found = self.values[rows].astype(np.float32)
        # In place: a second array would be as large.
        found /= np.float32(255)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all of it."""
        whole: NDArray[Any] = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with all of it."""
        whole = [np.asarray(value) if isinstance(value, Pixels) else value for value in inputs]
        return getattr(function, method)(*whole, **options)

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for names of Python's own protocols before `values` is there.
        if name.startswith("__") or name == "values":
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def pooled(first: Any, second: Any) -> Any:
    """Return the images of two arrays as one; of `Pixels` as `Pixels`."""
    if isinstance(first, Pixels) and isinstance(second, Pixels):
        return Pixels(np.concatenate([first.values, second.values]))
    return np.concatenate([first, second])
