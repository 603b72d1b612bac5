"""Place clients that come later among clusters that are there already."""

import numpy as np

from florets.strategies.core import IntArray


def extended(clusters: IntArray, previous: IntArray) -> IntArray:
    """Return every client's model, where some clients have one and all have been clustered anew.

    Parameters
    ----------
    clusters : (M,) int64
        New clusters of all clients, numbered from 0.
    previous : (M,) int64
        Model that each client has, -1 for none.

    Returns
    -------
    (M,) int64
        Who has a model keeps it. Another client takes the model that most clients of its cluster have, the lowest
        number among equals; where none has one, the cluster's clients share a new model, numbered on in order of
        first appearance.
    """
    models = previous.copy()
    following = int(previous.max(initial=-1)) + 1
    for cluster in dict.fromkeys(clusters.tolist()):
        members = clusters == cluster
        known = previous[members & (previous >= 0)]
        if len(known) == 0:
            models[members] = following
            following += 1
        else:
            models[members & (previous < 0)] = int(np.bincount(known).argmax())
    return models
