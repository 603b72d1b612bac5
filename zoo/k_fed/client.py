"""k-FED's clients: k-means on their own data."""

import warnings
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor

from florets.client_app.client import Client
from florets.task.device import one_thread
from florets.task.randomness import Purpose
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.zoo.k_fed.messages import LocalCentres

FEATURES = ("inputs", "inputs_and_targets")
Rows = NDArray[np.float64]


def kmeans(client: Client) -> RecordDict:
    """Return at most k' centres of the training set, and how many samples belong to each.

    Source: Dennis et al. 2021, Alg. 1.
    """
    features = str(client.config.get(kinds.FEATURES, "inputs"))
    rows = feature_rows(client.data.x_train, client.data.y_train, client.task.num_outputs, features)
    most = int(client.number(kinds.LOCAL_CLUSTERS, 1))
    centres, sizes = local_centres(rows, most, client.random(Purpose.LOCAL_KMEANS))
    return pack(LocalCentres, sizes=sizes, centres=centres)


def feature_rows(x: Tensor, y: Tensor, num_outputs: int, features: str) -> Rows:
    """Return one row for each sample, float64 (n, D): its input, flat, then its target where that is asked for.

    Class labels become one-hot; the target of a regression is one entry.
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
    """Return the centres (k'', D) of a client's samples and how many, at least one, belong to each (k'',).

    There are at most `num_clusters`, k', and fewer where there are fewer distinct samples. 1: the mean, no k-means.

    Source: Dennis et al. 2021, Alg. 1. Deviation: k-means++, the best of ten starts, stands for Awasthi and Sheffet's
    k-means.
    """
    if num_clusters < 1:
        raise ValueError(f"local_clusters={num_clusters} must be at least 1.")
    if num_clusters == 1:
        return rows.mean(axis=0, keepdims=True).astype(np.float32), np.array([len(rows)])
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= num_clusters:
        return distinct.astype(np.float32), counts.astype(np.int64)

    labels, centres = _lloyd(rows, num_clusters, int(rng.integers(2**31 - 1)))
    found, sizes = np.unique(labels, return_counts=True)
    return centres[found].astype(np.float32), sizes.astype(np.int64)


def _lloyd(rows: Rows, num_clusters: int, seed: int) -> tuple[NDArray[Any], Rows]:
    """Return the cluster of each row, and the centres: Lloyd's steps, the best of ten random starts."""
    from sklearn.cluster import KMeans  # it takes a second that other clients' work does not need
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(num_clusters, random_state=seed, n_init=10)
    with one_thread(), warnings.catch_warnings():
        # Rows that differ only in their last bits can fall together: fewer centres then, as documented.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(rows)
    return labels, model.cluster_centers_
