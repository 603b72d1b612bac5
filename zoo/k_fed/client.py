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
METHODS = ("kmeans", "awasthi_sheffet")
Rows = NDArray[np.float64]


def kmeans(client: Client) -> RecordDict:
    """Return at most k' centres of the training set, and how many samples belong to each.

    Source: Dennis et al. 2021, Alg. 1.
    """
    features = str(client.config.get(kinds.FEATURES, "inputs"))
    rows = feature_rows(client.data.x_train, client.data.y_train, client.task.num_outputs, features)
    most = int(client.number(kinds.LOCAL_CLUSTERS, 1))
    method = str(client.config.get(kinds.LOCAL_METHOD, "kmeans"))
    centres, sizes = local_centres(rows, most, client.random(Purpose.LOCAL_KMEANS), method)
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
    rows: Rows, num_clusters: int, rng: np.random.Generator, method: str = "kmeans"
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the centres (k'', D) of a client's samples and how many, at least one, belong to each (k'',).

    There are at most `num_clusters`, k', and fewer where there are fewer distinct samples. 1: the mean, no k-means.
    `method` is ``kmeans`` (k-means++, the best of ten starts) or ``awasthi_sheffet``.

    Source: Dennis et al. 2021, Alg. 1, whose k-means is Awasthi and Sheffet's. Deviation: ``kmeans`` is ours.
    """
    if method not in METHODS:
        raise ValueError(f"local_method={method!r} must be one of {', '.join(METHODS)}.")
    if num_clusters < 1:
        raise ValueError(f"local_clusters={num_clusters} must be at least 1.")
    if num_clusters == 1:
        return rows.mean(axis=0, keepdims=True).astype(np.float32), np.array([len(rows)])
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= num_clusters:
        return distinct.astype(np.float32), counts.astype(np.int64)

    seed = int(rng.integers(2**31 - 1))
    if method == "awasthi_sheffet":
        labels, centres = _awasthi_sheffet(rows, num_clusters, seed)
    else:
        labels, centres = _lloyd(rows, num_clusters, seed)
    found, sizes = np.unique(labels, return_counts=True)
    return centres[found].astype(np.float32), sizes.astype(np.int64)


def in_leading_subspace(rows: Rows, count: int) -> Rows:
    """Return the coordinates (n, min(count, n, D)) of rows (n, D) along their leading right singular vectors.

    Rows are not centred. Distances between coordinates are those between the rows' projections.
    """
    with one_thread():
        left, values, _ = np.linalg.svd(rows, full_matrices=False)
    coordinates: Rows = left[:, :count] * values[:count]
    return coordinates


def near_means(rows: Rows, coordinates: Rows, centres: Rows) -> Rows:
    """Return for each centre the mean (k, D) of the rows that are three times as near to it as to any other.

    `coordinates` (n, s) are the rows (n, D) where the `centres` (k, s), at least two, were found. A centre that no
    row is so near to gets the mean of the rows whose nearest centre it is, or of its one nearest row.
    """
    distances = np.linalg.norm(coordinates[:, np.newaxis] - centres, axis=2)
    nearest, means = distances.argmin(axis=1), np.empty((len(centres), rows.shape[1]))
    for place in range(len(centres)):
        others = np.delete(distances, place, axis=1).min(axis=1)
        near = 3 * distances[:, place] <= others
        if not near.any():
            near = nearest == place
        if not near.any():
            near = np.arange(len(rows)) == distances[:, place].argmin()
        means[place] = rows[near].mean(axis=0)
    return means


def _awasthi_sheffet(rows: Rows, num_clusters: int, seed: int) -> tuple[NDArray[Any], Rows]:
    """Return the cluster of each row and the centres by Awasthi and Sheffet's algorithm.

    k-means of the rows' projections on their k leading singular directions gives centres; Lloyd's steps on the rows
    themselves begin at the means of those that are clearly of one centre.

    Source: Awasthi and Sheffet 2012, Alg. 1 (in k-FED: Alg. 1, l. 1 to 4). Deviation: k-means++, the best of ten
    starts, stands for the approximation within a factor of 10 that the first step asks for.
    """
    coordinates = in_leading_subspace(rows, num_clusters)
    _, centres = _lloyd(coordinates, num_clusters, seed)
    return _lloyd(rows, num_clusters, seed, near_means(rows, coordinates, centres))


def _lloyd(rows: Rows, num_clusters: int, seed: int, start: Rows | None = None) -> tuple[NDArray[Any], Rows]:
    """Return the cluster of each row, and the centres: Lloyd's steps from a start, or the best of ten random ones."""
    from sklearn.cluster import KMeans  # it takes a second that other clients' work does not need
    from sklearn.exceptions import ConvergenceWarning

    how: dict[str, Any] = {"n_init": 10} if start is None else {"init": start, "n_init": 1}
    model = KMeans(num_clusters, random_state=seed, **how)
    with one_thread(), warnings.catch_warnings():
        # Rows that differ only in their last bits can fall together: fewer centres then, as documented.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(rows)
    return labels, model.cluster_centers_
