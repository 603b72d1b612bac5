"""Models of groups that were found from one round's updates: each the mean of its members'."""

from collections.abc import Mapping, Sequence

import numpy as np

from florets.strategies.base.averaging import Updates
from florets.strategies.base.context import Round
from florets.strategies.core import FloatArray, IntArray
from florets.task.wire.replies import Update


def group_models(
    context: Round, updates: Sequence[tuple[str, Update]], groups: Mapping[str, int], count: int
) -> FloatArray:
    """Return the next bank (count, R), averaged as the round averages, from updates of model 0.

    Parameters
    ----------
    updates
        The round's valid updates by client key, all of the bank's first model.
    groups
        Group of each client; one that has none counts for no group.
    count
        Number of groups. One of which no member sent an update gets the mean of all updates.
    """

    def averaged(chosen: Sequence[tuple[str, Update]], models: IntArray, rows: int) -> FloatArray:
        start = context.models.replaced(np.repeat(context.models.bank[:1], rows, axis=0))
        return context.averaging.next_bank(
            start,
            Updates(chosen),
            models,
            np.array([update.num_examples for _, update in chosen], dtype=np.float64),
        )

    members = [(key, update) for key, update in updates if key in groups]
    everybody = averaged(updates, np.zeros(len(updates), dtype=np.int64), 1)
    if not members:
        return np.repeat(everybody, count, axis=0)
    labels = np.array([groups[key] for key, _ in members], dtype=np.int64)
    bank = averaged(members, labels, count)
    bank[np.setdiff1d(np.arange(count), labels)] = everybody[0]
    return bank
