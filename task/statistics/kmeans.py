"""k-means on a client's own data, for k-FED."""

import warnings
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from florets.task.threads import one_thread

FEATURES = ("inputs", "inputs_and_targets")

Rows = NDArray[np.float64]


def num_features(input_shape: tuple[int, ...], num_outputs: int, features: str) -> int:
    """Return the length D of a client's feature rows, see `feature_rows`."""
    return prod(input_shape) + (num_outputs if features == "inputs_and_targets" else 0)


def feature_rows(x: Tensor, y: Tensor, num_outputs: int, features: str) -> Rows:
    """Return one row for each sample: its input, flat, and beside it its target where that is asked for.

    Parameters
    ----------
    x, y
        Inputs (n, *input_shape) and targets (n,).
    num_outputs
        Number of classes; class labels become one-hot. 1 for a regression, whose target is one entry.
    features
        ``inputs`` or ``inputs_and_targets``.

    Returns
    -------
    ndarray
        float64 (n, D)

    Raises
    ------
    ValueError
        If `features` is another word.
    """
    if features not in FEATURES:
        raise ValueError(f"features={features!r} must be one of {', '.join(FEATURES)}.")
    rows: Rows = x.flatten(1).cpu().numpy().astype(np.float64)
    if features == "inputs":
        return rows
    targets: NDArray[Any] = y.cpu().numpy()
    beside = targets[:, np.newaxis] if y.is_floating_point() else np.eye(num_outputs)[targets]
    return np.concatenate([rows, beside], axis=1)


def local_centres(
    rows: Rows, num_clusters: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the centres of a client's samples and how many belong to each.

    Parameters
    ----------
    rows
        float64 (n, D), at least one.
    num_clusters
        k', at least 1; fewer centres come out where there are fewer distinct samples. 1: the mean, no k-means.
    rng
        Seeds k-means; not used otherwise.

    Returns
    -------
    centres, sizes
        float32 (k'', D) and int64 (k'',), every size at least 1.

    Raises
    ------
    ValueError
        If `num_clusters` is below 1.

    Source: Dennis et al. 2021, Alg. 1. Deviation: k-means++, the best of ten starts, in place of the k-means of
    Awasthi and Sheffet.
    """
    if num_clusters < 1:
        raise ValueError(f"local_clusters={num_clusters} must be at least 1.")
    if num_clusters == 1:
        return rows.mean(axis=0, keepdims=True).astype(np.float32), np.array([len(rows)])
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= num_clusters:
        return distinct.astype(np.float32), counts.astype(np.int64)

    from sklearn.cluster import KMeans  # it takes a second that other clients' work does not need
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(num_clusters, n_init=10, random_state=int(rng.integers(2**31 - 1)))
    with one_thread(), warnings.catch_warnings():
        # Rows that differ only in their last bits can fall together: fewer centres then, as documented.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(rows)
    found, sizes = np.unique(labels, return_counts=True)
    return model.cluster_centers_[found].astype(np.float32), sizes.astype(np.int64)
