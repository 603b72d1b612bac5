"""Quarantine in a run: whose updates count, what is reported of the others, and how they change their group."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.base.context import Round
from florets.strategies.base.exchange import log
from florets.strategies.base.models import ModelAveraging, Updates
from florets.strategies.base.report import ADVICE, QUARANTINE, Detail, State, named
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.cluster import finite_losses
from florets.strategies.core.outliers import LEAST_CLIENTS
from florets.strategies.core.quarantine import ROUNDS, Quarantine
from florets.strategies.core.robust import gram_of, most_hostile
from florets.strategies.core.rows import Columns
from florets.strategies.core.set_aside import drawn_in, far_rows, has_groups
from florets.task.randomness import Purpose
from florets.task.wire.replies import Update


def trusted_updates(
    state: State, context: Round, updates: Sequence[tuple[str, Update]]
) -> Sequence[tuple[str, Update]]:
    """Judge a round's updates, and return those of clients that are not in quarantine.

    Only with a robust rule and several models: where one model is trained for all, clients of several groups disagree
    by what they are.
    """
    rule, models = context.averaging.robust, context.models
    if rule is None or models.count == 1:
        return updates
    quarantine = state.quarantine = state.quarantine or Quarantine()
    rows, trained = Updates(updates), models.layout.trained
    changed = rows if trained.all() else Columns(rows, trained)
    for model in sorted(set(rows.models.tolist())):
        members = np.flatnonzero(rows.models == model)
        start = models.bank[model, trained]
        start = start if isinstance(context.averaging, ModelAveraging) else np.zeros_like(start)
        most = most_hostile(len(members), rule.hostile)
        gram = gram_of(changed, members, start, most + 1)
        back = quarantine.observe(model, [rows.keys[row] for row in members], gram, most)
        if back:
            log.info("client %s has left quarantine: %d updates running agree with its group's", named(back), ROUNDS)
    away = {*quarantine.clients, *quarantine.probation}
    if context.averaging.note is not None:
        for key, _ in updates:
            if key in away:
                context.averaging.note(key, 0.0)
    return [(key, update) for key, update in updates if key not in away]


def bounded_rows(
    state: State, context: Round, keys: Sequence[str], rows: FloatArray, num_clusters: int
) -> tuple[FloatArray, BoolArray]:
    """Return clients' rows (M, D) as they are to be clustered, and which of them are set aside and placed afterwards.

    Without a robust rule the rows as they are, and none. Else those of clients in quarantine are set aside, as are
    far ones (`core.set_aside`) in a client's first `PROBATION` rounds, in which its updates do not count. After them,
    where the others have all groups without the far ones, these are in quarantine, and otherwise they are a group of
    another scale: they are drawn in and clustered.
    """
    rule, none = context.averaging.robust, np.zeros(len(rows), dtype=np.bool_)
    if rule is None:
        return rows, none
    rows, most = finite_losses(rows), most_hostile(len(rows), rule.hostile)
    quarantine = state.quarantine = state.quarantine or Quarantine()
    far = far_rows(rows, most)
    if num_clusters < 2 or (~far).sum() <= num_clusters + 1:
        # Nothing can be said of so few, nor of one group.
        far[:] = False
    judged = {key for key, is_far in zip(keys, far.tolist(), strict=True) if quarantine.is_judged(key, is_far)}
    away = np.array([key in {*quarantine.clients, *quarantine.probation, *judged} for key in keys])
    if judged and has_groups(rows[~away], num_clusters, context.random(Purpose.CLUSTERING)):
        quarantine.enter(sorted(judged))
    away = np.array([key in quarantine.clients or key in quarantine.probation for key in keys])
    return drawn_in(rows, most), away if len(rows) - away.sum() >= max(num_clusters, LEAST_CLIENTS) else none


def move_quarantined(state: State, context: Round) -> None:
    """Let clients in quarantine change their group where the groups are fixed: one whose data have changed may.

    They are asked for their losses (one exchange) every `ROUNDS` rounds, and stay in quarantine until their updates
    agree with the new group's.
    """
    if state.quarantine is None:
        return
    due = [client for client in context.participants if state.quarantine.is_due(client.key)]
    for key, best in context.ask_lowest(due).items():
        if best != state.assignment.get(key):
            log.info("client %s, in quarantine, has changed to model %d", key, best)
            state.assignment[key] = best


def quarantine_details(state: State, context: Round) -> dict[str, Detail]:
    """Return the clients in quarantine, and what a user should know of those who are new there."""
    quarantine = state.quarantine
    if quarantine is None or not quarantine.clients:
        return {}
    found: dict[str, Detail] = {QUARANTINE: {"clients": sorted(quarantine.clients)}}
    if quarantine.entered:
        found[ADVICE] = (
            f"client {named(sorted(quarantine.entered))} is in quarantine from round {context.server_round} on: its "
            f"update departed from its group's in {ROUNDS} rounds running, or what it was to be grouped by from all "
            f"others'. It is sent models and tested, and counts "
            f"again once {ROUNDS} updates running agree; look at its data and its node"
        )
    return found
