"""Global class prototypes: means of the clients' own."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.core import FloatArray, IntArray


def global_prototypes(prototypes: Sequence[FloatArray], counts: Sequence[IntArray]) -> tuple[FloatArray, IntArray]:
    """Return the prototypes (P, D) of the classes that some client has, and these classes (P,).

    Parameters
    ----------
    prototypes
        (C, D) of each client, in the order of their keys; rows of classes that it lacks are not read.
    counts
        (C,) samples of each class, which weigh the clients' prototypes.

    Source: Tan et al. 2022 (FedProto), Eq. 6.
    """
    weights = np.stack(counts).astype(np.float64)
    total = weights.sum(axis=0)
    classes = np.flatnonzero(total)
    sums = np.zeros((len(classes), prototypes[0].shape[1]))
    for own, weight in zip(prototypes, weights, strict=True):
        sums += weight[classes, np.newaxis] * np.where(weight[classes, np.newaxis] > 0, own[classes], 0.0)
    return sums / total[classes, np.newaxis], classes
