"""The digits of scikit-learn: 1,797 real 8 x 8 images that need no download."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.registry import register_data

# The split is part of the data set, like MNIST's: the same for every seed, so that seeds are comparable.
SPLIT_SEED = 1797
TEST_SHARE = 0.2


@register_data("digits", files=False)
def digits(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load scikit-learn's digits, pixels in [0, 1], as images (n, 1, 8, 8).

    scikit-learn gives no split of its own. Of each class 20 % (rounded) of the images are the test set, drawn
    once with a fixed seed: 1,438 train and 359 test images. `data_dir`, `seed`, `num_clusters` are not used.
    """
    # Copies: an owner of data may change them.
    x_train, y_train, x_test, y_test = (array.copy() for array in _split())
    return Dataset(x_train, y_train, x_test, y_test, num_outputs=10)


@cache
def _split() -> tuple[np.ndarray[Any, Any], ...]:
    """Return inputs and labels for training, then for testing; read once, as every job of a sweep asks for them."""
    from sklearn.datasets import load_digits  # slow to import, and needed for this data set alone

    bunch = load_digits()
    x = (bunch.images / 16.0).astype(np.float32)[:, None, :, :]
    y = bunch.target.astype(np.int64)
    rng = np.random.default_rng(SPLIT_SEED)
    is_test = np.zeros(len(y), dtype=bool)
    for label in range(10):
        of_class = rng.permutation(np.flatnonzero(y == label))
        is_test[of_class[: round(TEST_SHARE * len(of_class))]] = True
    return x[~is_test], y[~is_test], x[is_test], y[is_test]
