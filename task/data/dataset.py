"""The one form in which every data set arrives: arrays, or images kept as bytes, split into train and test."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Pixels:
    """Images of float32 in [0, 1], made of bytes (n, channels, height, width) when they are read."""

    def __init__(self, values: NDArray[np.uint8]) -> None:
        self.values = np.ascontiguousarray(values)
        self.shape: tuple[int, ...] = values.shape
        self.ndim = values.ndim

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


FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
Inputs = FloatArray | Pixels
TargetArray = NDArray[Any]  # int64 class labels, or float32 values of a regression

# Stands for "the class labels" as groups; replaced when the data set is made.
_BY_CLASS: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory.

    Parameters
    ----------
    x_train, x_test
        Inputs, float32 (n, *input_shape). Images are (n, channels, height, width), in [0, 1] unless
        standardised, and may be kept as bytes (`Pixels`). One array under both names is a pool without a
        split of its own: each client then splits what it gets of it.
    y_train, y_test
        Targets (n,): int64 class labels, or float32 values; of several numbers a sample float32 (n, C).
    num_outputs
        How many outputs a model needs: the number of classes, or 1 for a regression.
    group_train, group_test
        What partitions go by, int64 (n,). By default the class labels.
    true_models
        float32 (K, R): the models behind synthetic data, row k that of group k, else None.
    owners_train, owners_test
        Whose each sample is (n,), by name: the writer, the hospital. None where that is not known.
    scaled
        Of a node's own arrays and images: whether they are integers of pixels that were brought to [0, 1], or numbers
        as the files have them. None: not known.
    subjects_train
        int64 (n,): training samples of one number belong together, such as those of one patient. None: each stands
        for itself.
    target_scale
        Unit of the targets of a regression: errors times it are in the unit that the data came in.

    Raises
    ------
    ValueError
        If lengths or shapes do not fit together, labels are out of range, or a regression gives no groups.
    """

    x_train: Inputs
    y_train: TargetArray
    x_test: Inputs
    y_test: TargetArray
    num_outputs: int
    group_train: IntArray = field(default_factory=lambda: _BY_CLASS)
    group_test: IntArray = field(default_factory=lambda: _BY_CLASS)
    true_models: FloatArray | None = None
    owners_train: NDArray[np.str_] | None = None
    owners_test: NDArray[np.str_] | None = None
    scaled: bool | None = None
    subjects_train: IntArray | None = None
    target_scale: float = 1.0

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            x = getattr(self, f"x_{part}")
            if not isinstance(x, Pixels):
                x = np.ascontiguousarray(x, dtype=np.float32)
            y = np.asarray(getattr(self, f"y_{part}"))
            y = y.astype(np.int64 if np.issubdtype(y.dtype, np.integer) else np.float32, copy=False)
            group = getattr(self, f"group_{part}")
            if group is _BY_CLASS:
                if y.dtype != np.int64:
                    raise ValueError(f"group_{part} is missing, and targets that are no class labels give no groups.")
                group = y
            group = np.asarray(group, dtype=np.int64)
            if not len(x) == len(y) == len(group):
                raise ValueError(f"the {part} set has {len(x)} inputs, {len(y)} targets and {len(group)} groups.")
            if len(x) == 0:
                raise ValueError(f"the {part} set is empty: every data set needs train and test samples.")
            object.__setattr__(self, f"x_{part}", x)
            object.__setattr__(self, f"y_{part}", y)
            object.__setattr__(self, f"group_{part}", group)
            if y.dtype == np.int64 and not 0 <= y.min() <= y.max() < self.num_outputs:
                raise ValueError(f"the {part} set has class labels that are not from 0 to {self.num_outputs - 1}.")
            owners = getattr(self, f"owners_{part}")
            if owners is not None and owners.shape != y.shape[:1]:
                raise ValueError(f"the {part} set has {len(y)} targets, but owners of shape {owners.shape}.")
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise ValueError(f"train inputs are {self.x_train.shape[1:]}, test inputs {self.x_test.shape[1:]}.")

    @property
    def pooled(self) -> bool:
        """Whether train and test part are one pool of samples."""
        return self.x_train is self.x_test

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, e.g. (1, 28, 28)."""
        return tuple(self.x_train.shape[1:])


def of_groups(x: NDArray[Any], y: NDArray[Any], train: int, num_outputs: int, **more: Any) -> Dataset:
    """Return samples (K, n, ...) of K groups as a data set; the first `train` of each group are trained on."""
    groups: NDArray[Any] = np.broadcast_to(np.arange(len(y))[:, None], y.shape)
    x_train, y_train, of_train = (each[:, :train].reshape(-1, *each.shape[2:]) for each in (x, y, groups))
    x_test, y_test, of_test = (each[:, train:].reshape(-1, *each.shape[2:]) for each in (x, y, groups))
    return Dataset(x_train, y_train, x_test, y_test, num_outputs, of_train, of_test, **more)


def pool(data: Dataset) -> Dataset:
    """Return all samples as one pool, train part first, for partitions that split it on each client."""
    parts, y = (data.x_train, data.x_test), np.concatenate([data.y_train, data.y_test])
    x: Any = (
        Pixels(np.concatenate([part.values for part in parts if isinstance(part, Pixels)]))
        if isinstance(data.x_train, Pixels)
        else np.concatenate(parts)
    )
    return Dataset(x, y, x, y, num_outputs=data.num_outputs)
