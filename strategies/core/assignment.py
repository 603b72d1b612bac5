"""Assign models to clients at random, before any losses are known."""

import numpy as np

from florets.strategies.core import IntArray


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
