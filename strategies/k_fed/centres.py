"""One-shot federated k-means: group the centres that clients found in their own data."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, centroids, nearest_centroid


def group_centres(
    centres: FloatArray, owners: IntArray, num_groups: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Group all clients' centres into `num_groups` groups, in one pass.

    One client's centres are taken as they are; then, as long as there are too few, the centre that is farthest from
    all those taken is taken as well. Every centre then belongs to the nearest of those taken.

    Parameters
    ----------
    centres : (N, D) float64
        Local centres of all clients, in the order of client keys.
    owners : (N,) int64
        Client of each centre; a client has at most `num_groups`.
    num_groups : int
        Groups wanted. Where there are fewer distinct centres, fewer are found.
    rng : numpy.random.Generator
        Draws the client to begin with.

    Returns
    -------
    groups : (N,) int64
        Group of each centre, numbered from 0 in order of first appearance.
    means : (C, D) float64
        Mean of each group's centres, each centre counted once, whatever its size.

    Raises
    ------
    ValueError
        If a client has more centres than there are to be groups.

    Source: Dennis et al. 2021 (k-FED), Alg. 2; the paper leaves open which client comes first.
    """
    _, counts = np.unique(owners, return_counts=True)
    if counts.max() > num_groups:
        raise ValueError(
            f"a client sent {counts.max()} centres for {num_groups} groups: it can hold no more groups than there "
            "are; lower local_clusters, or raise k."
        )
    first = rng.choice(np.unique(owners))
    taken: list[int] = []
    distances = np.full(len(centres), np.inf)
    for row in np.flatnonzero(owners == first):
        # A centre sent twice is one.
        if distances[row] > 0:
            distances = _take(int(row), centres, distances, taken)
    while len(taken) < num_groups and distances.max() > 0:
        distances = _take(int(distances.argmax()), centres, distances, taken)
    groups = canonical(nearest_centroid(centres, centres[taken]))
    return groups, centroids(centres, groups)


def main_group(groups: IntArray, sizes: IntArray) -> int:
    """Return the group that holds most of a client's samples; the lowest number among equals.

    Parameters
    ----------
    groups : (N,) int64
        Group of each of the client's centres.
    sizes : (N,) int64
        Samples behind each centre.
    """
    # Integers all the way: bincount's weights would be floats, and ties would hang on rounding.
    samples = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.add.at(samples, groups, sizes)
    return int(samples.argmax())


def _take(row: int, centres: FloatArray, distances: FloatArray, taken: list[int]) -> FloatArray:
    """Note a centre as taken and return every centre's distance to the nearest one taken (N,)."""
    taken.append(row)
    nearer: FloatArray = np.minimum(distances, np.linalg.norm(centres - centres[row], axis=1))
    return nearer
