"""Principal vectors of a client's inputs, for PACFL."""

import numpy as np
from numpy.typing import NDArray

from florets.task.threads import one_thread

_NOTHING = 1e-9
"""Relative to the largest singular value: below it a vector is rounding error, and any direction would do."""


def principal_directions(
    inputs: NDArray[np.float64], labels: NDArray[np.integer], count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the first left singular vectors of each class's inputs, which are taken as they are, not centred.

    Parameters
    ----------
    inputs
        (n, D), one sample a row.
    labels
        (n,), class of each sample, from 0.
    count
        p, vectors of each class; a class whose inputs have a lower rank has as many as that.

    Returns
    -------
    vectors
        (D, m), of length 1, class by class.
    places
        (m,) int64, rising: class times `count` plus the vector's rank in its class.

    Raises
    ------
    ValueError
        If all inputs are zero: no direction is theirs.
    """
    found, places = [], []
    for label in np.unique(labels):
        with one_thread():
            vectors, values, _ = np.linalg.svd(inputs[labels == label].T, full_matrices=False)
        rank = min(count, int(np.sum(values > _NOTHING * max(values[0], np.finfo(np.float64).tiny))))
        found.append(vectors[:, :rank])
        places.append(int(label) * count + np.arange(rank, dtype=np.int64))
    together = np.concatenate(found, axis=1)
    if together.shape[1] == 0:
        raise ValueError("all inputs are zero: they have no principal vectors.")
    return together, np.concatenate(places)
