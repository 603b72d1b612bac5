"""Groups of clients by what one round of training changed in one common model."""

import numpy as np
from scipy.cluster.hierarchy import ward

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_scores import centred_rows, distances, gram_of
from florets.strategies.core.ward import cut


def update_groups(changes: FloatArray, num_groups: int) -> IntArray:
    """Group clients by the directions of their updates, by Ward's method.

    Parameters
    ----------
    changes : (M, D) float
        What training changed in each client's trainable parameters, or their gradients; at least one client. Only
        the direction counts, less the clients' mean.
    num_groups : int
        At least 1; with as many groups as clients, or more, each is alone.

    Returns
    -------
    (M,) int64
        Group of each client, numbered from 0 in order of first appearance.
    """
    if len(changes) == 1:
        return np.zeros(1, dtype=np.int64)
    gram = gram_of(centred_rows(changes[:, np.newaxis]))[0, :, 0]
    return canonical(cut(ward(distances(gram)), min(num_groups, len(changes))))
