"""Starting models: other random ones, clients far from those chosen, and how good a start was."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.finite import finite_losses


def shuffled(bank: FloatArray, layers: IntArray, rng: np.random.Generator) -> FloatArray:
    """Return other random models, drawn as these were: the entries of each layer change places, in all models alike.

    Initial weights of a layer are independent draws from one distribution, and in another order they are another such
    draw. What holds between the models, that they are equal, or orthonormal, or equal in some layers, stays.

    Parameters
    ----------
    bank : (K, R) float64
        Initial models, not trained.
    layers : (R,) int64
        Layer of each entry, numbered from 0.
    """
    order = np.arange(bank.shape[1])
    for layer in np.unique(layers):
        entries = np.flatnonzero(layers == layer)
        order[entries] = rng.permutation(entries)
    return bank[:, order]


def farthest(losses: FloatArray, chosen: IntArray) -> int:
    """Return the client whose least loss over the models chosen so far is largest, of those that are not chosen.

    Parameters
    ----------
    losses : (M, C) float64
        Loss of each chosen client's model on each client's data, infinite where it diverged.
    chosen : (C,) int64
        The chosen clients, fewer than M.

    Returns
    -------
    int
        Its row; the first among equals.

    Source: Mansour et al. 2020 (HypCluster), in google/fedjax, k-means++ over clients.
    Deviation: a client that is chosen is not chosen again.
    """
    least = finite_losses(losses).min(axis=1)
    least[chosen] = -np.inf
    return int(np.argmax(least))


def least_loss(losses: FloatArray) -> float:
    """Return the mean over clients of their least loss (M, K); infinite where a client has no finite one."""
    return float(losses.min(axis=1).mean())


def least_share(losses: FloatArray) -> float:
    """Return the smallest fraction of the clients that a model has, where each takes the one with its lowest loss.

    Parameters
    ----------
    losses : (M, K) float64
        M at least 1.

    Source: Ghosh et al. 2020 (IFCA), whose experiments begin anew until every model has such a share of clients.
    """
    return float(np.bincount(losses.argmin(axis=1), minlength=losses.shape[1]).min() / len(losses))
