"""Rules of waiting before a search: until a regression's model has learned what all share, and clients are enough."""

import math
from collections.abc import Sequence

import numpy as np

from florets.strategies.base.models import Updates, penalty_of
from florets.strategies.base.round import Round
from florets.strategies.core import FloatArray
from florets.strategies.shared.first_updates import changes_of
from florets.strategies.shared.fold_round import FoldRound, sends_estimates
from florets.task.training.settings import Training
from florets.task.wire.replies import Update

STILL = 0.05
"""Share of the clients' own movement below which what two rounds have in common counts as none."""


def common_move(changes: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the mean of the clients' updates (M, R), in units of the root mean square of their lengths, (R,).

    It has length 1 where all move alike, and is near 0 where each moves in another direction. `weights` (M,) are
    those of the average, not all zero.
    """
    shares = weights / weights.sum()
    length = np.sqrt(shares @ (changes**2).sum(axis=1))
    mean = shares @ changes
    unit: FloatArray = mean / length if length > 0.0 else np.zeros_like(mean)
    return unit


def moves_on(before: FloatArray, now: FloatArray) -> bool:
    """Say whether the mean update of this round still points where the last one did; both are from `common_move`.

    As long as the model is on its way to what all clients share, the mean updates of two rounds point the same way.
    Once it is there, what is left of them is each client's own, which cancels in the mean, and chance: their inner
    product is then about zero, or below, as steps too long go to and fro.

    Source: Pflug, Non-asymptotic confidence bounds for stochastic approximation algorithms with constant step size,
    1990: the sign of successive gradients' inner product.
    Deviation: a threshold slightly above zero, in units of the clients' own updates, because the full gradients of
    many clients have little chance in them: their mean shrinks towards zero and stays on one side of it.
    """
    return bool(before @ now >= STILL)


_PER_GROUP, _UNKNOWN = 5, 40
"""Clients needed to look for groups: for each group, and where their number is not given."""
_MOST_NEEDED = 0.75
"""Of all clients with enough samples for folds: the last ones to be drawn may take many rounds."""
REGRESSION = ("squared_error", "half_squared_error")
"""Losses whose updates all clients share at first, whatever group they are of: those of a model that has to find its
scale and the inputs that count. A classifier's groups show in what it learns first."""
_LATEST = 40
"""Round in which a regression's groups are looked for even if the one model still moves on."""
_PATIENCE = 2
"""Rounds in which the rows of clients whose replies were lost are waited for, where all take part."""


def move_of(r: Round, updates: Sequence[tuple[str, Update]]) -> FloatArray:
    """Return the `common_move` of a round that trained one model."""
    gradients = [update.gradient for _, update in updates if update.gradient is not None]
    if len(gradients) < len(updates):
        return common_move(changes_of(r, updates), Updates(updates).examples)
    # Where one model fits all, gradients and the ridge's cancel. Newton's steps do not: each has a metric of its own.
    models, training = r.models, Training.received(r.config)
    shrinking = penalty_of(models.layout, training) * models.bank[0] / len(updates)
    return common_move(np.stack(gradients) + shrinking, np.ones(len(updates)))


def shares_first(r: Round, loss: str) -> bool:
    """Say whether clients may first have to learn what they share, as long as it goes on (`moves_on`)."""
    # Estimates are told apart by how far they lie from what all share.
    return (loss in REGRESSION or sends_estimates(r)) and r.server_round < _LATEST


def needed(folds: FoldRound, r: Round, k: int | None, looks: int) -> int:
    """Return how many clients' rows the search needs, in its so many-th look; k: None where it is not given."""
    # Clients with too few samples for folds send none.
    able = sum(folds.size_of(client) > 0 for client in r.online)
    most = max(2, math.ceil(_MOST_NEEDED * able))
    if len(r.participants) == len(r.online):
        # Nobody else to wait for; clients whose reply was lost are asked again, for some rounds.
        return min(able, most if looks <= _PATIENCE else 2)
    return min(_UNKNOWN if k is None else _PER_GROUP * k, most)
