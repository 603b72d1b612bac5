"""First assignments of a run: models drawn at random, or groups found by the updates of one model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from florets.strategies.base.report import Client
from florets.strategies.base.round import Round, Steps
from florets.strategies.core import IntArray
from florets.task.randomness import Purpose


def begun(strategy: Any, r: Round) -> Steps:
    """Return a round's steps: the algorithm's own, unless the run chose another first assignment (`first_round`)."""
    if r.server_round == 1 and strategy.first_round == "update":
        # All that searches for groups.
        from florets.strategies.shared.first_updates import start_from_updates

        return start_from_updates(strategy, r)
    draws = strategy.first_round == "random" and "evaluate" in strategy.settings.follows["first_round"]
    if r.server_round == 1 and draws:
        return start_from_draw(strategy, r)
    steps: Steps = strategy.round(r)
    return steps


def start_from_draw(strategy: Any, r: Round) -> Steps:
    """Let every participant train a random model."""
    groups = draw_models(r.participants, r.models.count, r.random(Purpose.FIRST_ROUND))
    strategy.assignment.update(groups)
    strategy.begins(groups, are_found=False)
    updates = yield r.train(groups)
    return r.average(updates, drawn=True)


def draw_models(clients: Sequence[Client], num_models: int, rng: np.random.Generator) -> dict[str, int]:
    """Give every client a random model, and every model a client where there are enough clients."""
    drawn = random_assignment(len(clients), num_models, rng)
    return {client.key: int(model) for client, model in zip(clients, drawn, strict=True)}


def random_assignment(num_clients: int, num_models: int, rng: np.random.Generator) -> IntArray:
    """Draw a model (M,) for each client such that no model is left out needlessly.

    After a uniform draw each model without a client takes one at random from those that have more than one.

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
