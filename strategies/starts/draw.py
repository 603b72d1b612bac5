"""Random assignments of clients to models, with no model left out needlessly."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.base.report import Client
from florets.strategies.core import IntArray


def draw_models(clients: Sequence[Client], num_models: int, rng: np.random.Generator) -> dict[str, int]:
    """Give every client a random model, and every model a client where there are enough clients.

    Deviation: in CLoVE's published code a model can still end up without a client.
    """
    drawn = random_assignment(len(clients), num_models, rng)
    return {client.key: int(model) for client, model in zip(clients, drawn, strict=True)}


def random_assignment(num_clients: int, num_models: int, rng: np.random.Generator) -> IntArray:
    """Draw a model (M,) for each client such that no model is left out needlessly.

    With M >= K a uniform draw, after which each model without a client takes one at random from those models that
    have more than one. With M < K all clients have different models.

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
