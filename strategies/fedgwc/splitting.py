"""FedGWC's split of a cluster: affinities of its clients, and spectral clustering of these."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, qr, svd
from scipy.spatial.distance import cdist
from sklearn.metrics import davies_bouldin_score

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.threads import one_thread

_EQUAL = 1e-9


@dataclass(frozen=True)
class Split:
    """Groups of a cluster's clients.

    Attributes
    ----------
    groups
        (M,), numbered from 0 in order of first appearance.
    index
        Their Davies-Bouldin index; the smaller, the further they are apart.
    """

    groups: IntArray
    index: float


def affinities(interactions: FloatArray, gamma: float) -> FloatArray:
    """Return how alike two clients are in what they do to the others' rewards.

    Of clients j and k it is exp(-gamma |w_j - w_k|^2), with the columns w of the interaction matrix, scaled to
    [0, 1] as a whole, without their entries j and k.

    Parameters
    ----------
    interactions : (M, M) float64
        Finite.
    gamma : float
        Above 0.

    Returns
    -------
    (M, M) float64
        Symmetric, from 0 to 1, with zeros on the diagonal.

    Source: Licciardi et al. 2025 (FedGWC), affinity matrix, as in the released code.
    """
    low, high = interactions.min(), interactions.max()
    columns = (interactions - low).T / (high - low if high > low else 1.0)
    own = np.diag(columns)
    # Entries j and k of both columns; `columns[k, j]` is entry j of column k.
    left_out = (own[:, np.newaxis] - columns.T) ** 2 + (columns - own[np.newaxis]) ** 2
    distances = np.clip(cdist(columns, columns, "sqeuclidean") - left_out, 0.0, None)
    found: FloatArray = np.exp(-gamma * (distances + distances.T) / 2)
    np.fill_diagonal(found, 0.0)
    return found


def best_split(affinity: FloatArray, most_groups: int, most_index: float) -> Split | None:
    """Return the spectral clustering with the least Davies-Bouldin index, of 2 to `most_groups` groups.

    Parameters
    ----------
    affinity : (M, M) float64
        From `affinities`.
    most_groups : int
        At least 2.
    most_index : float
        The index has to be less.

    Returns
    -------
    Split or None
        None where no number of groups has such an index, or nothing tells the clients apart.

    Source: Licciardi et al. 2025 (FedGWC), as in the released code: clusters from the first n eigenvectors of the
    normalised affinity by a pivoted QR decomposition (Damle, Minden and Ying 2019), judged in the n eigenvectors
    behind the first, which is the same for all clients.
    Deviation: both take the same eigenvectors, where the code computes them twice, from different starts.
    """
    size = len(affinity)
    most_groups = min(most_groups, size - 2)
    others = affinity[~np.eye(size, dtype=bool)]
    if most_groups < 2 or others.max() - others.min() <= _EQUAL * others.max():
        return None
    degrees = np.sqrt(np.maximum(affinity.sum(axis=1), np.finfo(float).tiny))
    with one_thread():
        _, vectors = eigh(affinity / np.outer(degrees, degrees), subset_by_index=(size - most_groups - 1, size - 1))
        vectors = vectors[:, ::-1]
        found = [_split(vectors[:, : number + 1], degrees, number) for number in range(2, most_groups + 1)]
    admitted = [split for split in found if split is not None and split.index < most_index]
    return min(admitted, key=lambda split: split.index, default=None)


def _split(vectors: FloatArray, degrees: FloatArray, number: int) -> Split | None:
    """Return `number` groups from one eigenvector more than that; None where there are fewer."""
    groups = canonical(_nearest_axes(vectors[:, :number]))
    if groups.max() + 1 < number:
        return None
    places = vectors[:, 1:] / degrees[:, np.newaxis]
    return Split(groups, float(davies_bouldin_score(places, groups)))


def _nearest_axes(vectors: FloatArray) -> IntArray:
    """Return for each row (M, N) of orthonormal columns the representative row whose direction it has.

    The pivots of a QR decomposition are rows that are far apart; the rotation that comes nearest to taking them to
    the axes takes the others of their groups there, too.
    """
    _, _, pivots = qr(vectors.T, pivoting=True)
    left, _, right = svd(vectors[pivots[: vectors.shape[1]]].T, full_matrices=False)
    nearest: IntArray = np.argmax(np.abs(vectors @ (left @ right)), axis=1).astype(np.int64)
    return nearest
