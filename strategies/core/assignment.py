"""Assign models to clients without clusters: at random, or each client the model of its lowest loss."""

import numpy as np

from strategies.core import FloatArray, IntArray


def random_assignment(num_clients: int, num_models: int, rng: np.random.Generator) -> IntArray:
    """Draw a model for each client such that no model is left out needlessly.

    Parameters
    ----------
    num_clients, num_models : int
        M may be 0; K is at least 1.
    rng : numpy.random.Generator

    Returns
    -------
    (M,) int64
        With M >= K a uniform draw, after which each model without a client takes one at random from those
        models that have more than one: every model has a client. With M < K all clients have different
        models.

    Raises
    ------
    ValueError
        If `num_models` is below 1.

    Source: CLoVE, random first round.
    Deviation: the published code overwrites the draw of any client, which can empty another model.
    """
    if num_models < 1:
        raise ValueError(f"num_models is {num_models}: it must be at least 1.")
    if num_clients < num_models:
        return rng.permutation(num_models)[:num_clients].astype(np.int64)
    assignment = rng.integers(num_models, size=num_clients, dtype=np.int64)
    sizes = np.bincount(assignment, minlength=num_models)
    for model in np.flatnonzero(sizes == 0):
        giver = rng.choice(np.flatnonzero(sizes[assignment] > 1))
        sizes[assignment[giver]] -= 1
        sizes[model] += 1
        assignment[giver] = model
    return assignment


def lowest_loss(losses: FloatArray) -> IntArray:
    """Return for each client the model with the lowest loss.

    Parameters
    ----------
    losses : (M, K) float64
        A NaN counts as infinite: a model that diverged is chosen only where all did (then model 0).

    Returns
    -------
    (M,) int64
        The lowest index among equals.

    Source: IFCA Alg. 1 (cluster identity estimate).
    """
    known = np.where(np.isnan(losses), np.inf, losses)
    models: IntArray = np.argmin(known, axis=1).astype(np.int64)
    return models
