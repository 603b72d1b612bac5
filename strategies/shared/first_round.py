"""The random first round that CLoVE, IFCA and CFL-GP share."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.base.report import Client
from florets.strategies.core.assignment import random_assignment


def draw_models(clients: Sequence[Client], num_models: int, rng: np.random.Generator) -> dict[str, int]:
    """Give every client a random model, and every model a client as far as there are enough of them.

    Deviation: in CLoVE's published code a model can still end up without a client.
    """
    drawn = random_assignment(len(clients), num_models, rng)
    return {client.key: int(model) for client, model in zip(clients, drawn, strict=True)}
