"""Descriptors of a client's features for FLUX: mean and spread of a projection, overall and for each class."""

import numpy as np
from numpy.typing import NDArray

from florets.task.device import one_thread
from florets.task.randomness import Purpose, generator

ABSENT = -1.0
"""Mean and spread of a class with fewer than two samples: no spread is negative."""


def projection(width: int, dimensions: int, seed: int) -> NDArray[np.float64]:
    """Return random directions (width, dimensions), the same for all clients of a run.

    They are orthonormal; where a feature vector has fewer entries than dimensions are asked for, the rows are, and
    distances are kept exactly.

    Source: the published code of Fenoglio et al. 2025 (FLUX), which takes the principal axes of 200 uniform random
    points, the same ones at every client and of nobody's data. Deviation: such axes are random directions, so that
    they are drawn here without the points.
    """
    rng = generator(seed, 0, Purpose.FEATURE_PROJECTION)
    gaussian = rng.standard_normal((max(width, dimensions), min(width, dimensions)))
    with one_thread():
        basis: NDArray[np.float64] = np.linalg.qr(gaussian)[0]
    return basis if width >= dimensions else basis.T


def describe(
    features: NDArray[np.float64], labels: NDArray[np.integer] | None, classes: int, directions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a client's descriptor (2 (C + 1), l): mean and spread of all samples, the classes' means, their spreads.

    `features` are (n, D), `directions` (D, l), from `projection`. A class with fewer than two samples, and every
    class without labels, is `ABSENT`.

    Source: Fenoglio et al. 2025 (FLUX), and the published code for the mark of absent classes.
    Deviation: the code can add Laplace noise to every value. The range that it is scaled by is the client's own and
    each value has epsilon to itself, so that no descriptor is differentially private with it; here there is none.
    """
    with one_thread():
        projected = features @ directions
    chosen = [np.ones(len(projected), dtype=bool)]
    chosen += [np.zeros(len(projected), dtype=bool) if labels is None else labels == c for c in range(classes)]
    means, spreads = [], []
    for place, mask in enumerate(chosen):
        rows = projected[mask]
        if place and len(rows) < 2:
            means.append(np.full(directions.shape[1], ABSENT))
            spreads.append(np.full(directions.shape[1], ABSENT))
            continue
        means.append(rows.mean(axis=0))
        spreads.append(rows.std(axis=0))
    return np.stack([means[0], spreads[0], *means[1:], *spreads[1:]])
