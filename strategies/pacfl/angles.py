"""Angles between the subspaces of clients' data, by three measures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from florets.strategies.core import FloatArray, IntArray

MEASURES = ("smallest_pair", "smallest_principal", "sum_corresponding")

_RANK = 1e-6
"""Singular values below this belong to no direction: vectors come in float32."""


@dataclass(frozen=True)
class Directions:
    """Principal vectors of one client's data.

    Attributes
    ----------
    vectors
        (D, m) float64, of length 1.
    places
        (m,) int64, rising: class times p plus rank. Vectors of one place correspond in any two clients.
    """

    vectors: FloatArray
    places: IntArray


def angle_matrix(clients: Sequence[Directions], measure: str) -> FloatArray:
    """Return the angles between any two clients' data.

    A singular vector's sign means nothing: of a vector and its opposite the smaller angle counts, so that no angle of
    two vectors exceeds 90.

    Parameters
    ----------
    clients : sequence of Directions
        M of them.
    measure : str
        ``"smallest_pair"``: the smallest angle between any vector of one and any of the other.
        ``"smallest_principal"``: the smallest principal angle of the subspaces that the vectors span.
        ``"sum_corresponding"``: the sum of the angles of corresponding vectors; one that only one of the two has
        counts 90.

    Returns
    -------
    (M, M) float64
        Degrees; symmetric, with zeros on the diagonal.

    Raises
    ------
    ValueError
        If `measure` is unknown.

    Source: Vahidian et al. 2023, the proximity matrix: the smallest angle, and the sum over corresponding vectors.
    Deviation: the published code, and so ``"smallest_pair"``, compares single vectors, which gives no principal
    angle; those are ``"smallest_principal"``. The code takes vectors with the sign that the decomposition gave them.
    """
    if measure not in MEASURES:
        raise ValueError(f"angle {measure!r} is unknown: choose one of {', '.join(MEASURES)}.")
    if measure == "smallest_principal":
        clients = [Directions(_basis(client.vectors), client.places) for client in clients]
    angles = np.zeros((len(clients), len(clients)))
    for i, one in enumerate(clients):
        for j in range(i):
            angles[i, j] = angles[j, i] = _angle(one, clients[j], measure)
    return angles


def _angle(one: Directions, other: Directions, measure: str) -> float:
    if measure == "sum_corresponding":
        _, mine, yours = np.intersect1d(one.places, other.places, assume_unique=True, return_indices=True)
        cosines = np.einsum("dm,dm->m", one.vectors[:, mine], other.vectors[:, yours])
        lacking = len(one.places) + len(other.places) - 2 * len(mine)
        return float(_degrees(np.abs(cosines)).sum()) + 90.0 * lacking
    # With an einsum in place of BLAS the products of two columns do not hang on how many others there are.
    products = np.einsum("da,db->ab", one.vectors, other.vectors)
    largest = np.linalg.norm(products, 2) if measure == "smallest_principal" else np.abs(products).max()
    return float(_degrees(np.array(largest)))


def _degrees(cosines: FloatArray) -> FloatArray:
    degrees: FloatArray = np.degrees(np.arccos(np.minimum(cosines, 1.0)))
    return degrees


def _basis(vectors: FloatArray) -> FloatArray:
    """Return an orthonormal basis of what the columns span: those of two classes need not be orthogonal."""
    basis, values, _ = np.linalg.svd(vectors, full_matrices=False)
    found: FloatArray = basis[:, values > _RANK * values[0]]
    return found
