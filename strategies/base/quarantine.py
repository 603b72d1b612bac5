"""Quarantine in a run: whose updates count, what is reported of the others, and how they change their group."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.base.round import Round
from florets.strategies.base.exchange import log
from florets.strategies.base.models import ModelAveraging, Updates
from florets.strategies.base.report import ADVICE, QUARANTINE, Detail, State, named
from florets.strategies.core import IntArray
from florets.strategies.core.quarantine import ROUNDS, Quarantine
from florets.strategies.core.robust import Gram, gram_of, most_expelled, most_hostile
from florets.strategies.core.rows import Columns
from florets.task.wire.replies import Update


def trusted_updates(state: State, context: Round, updates: Sequence[tuple[str, Update]]) -> Updates:
    """Judge a round's updates, and return those of clients that are not in quarantine.

    Only with a robust rule and several models: where one model is trained for all, clients of several groups disagree
    by what they are.
    """
    rule, models = context.averaging.robust, context.models
    if rule is None or models.count == 1:
        return Updates(updates)
    quarantine = state.quarantine = state.quarantine or Quarantine()
    rows, trained = Updates(updates), models.layout.trained
    changed = rows if trained.all() else Columns(rows, trained)
    keys, models_of, grams = rows.keys, rows.models, dict[int, tuple[IntArray, Gram]]()
    for model in sorted(set(models_of.tolist())):
        members = np.flatnonzero(models_of == model)
        start = models.bank[model, trained]
        start = start if isinstance(context.averaging, ModelAveraging) else np.zeros_like(start)
        gram = gram_of(changed, members, start, most_hostile(len(members), rule.hostile) + 1)
        # Of the whole group: of a small part of it that takes part most may be hostile.
        group = {key for key, own in state.assignment.items() if own == model} | {keys[row] for row in members}
        most = most_expelled(len(group), rule.hostile) - len(group & (quarantine.clients.keys() - set(keys)))
        grams[model] = members, gram
        back = quarantine.observe(model, [keys[row] for row in members], gram.products, most)
        if back:
            log.info("client %s has left quarantine: %d updates running agree with its group's", named(back), ROUNDS)
    away = {*quarantine.clients, *quarantine.probation}
    if context.averaging.note is not None:
        for key, _ in updates:
            if key in away:
                context.averaging.note(key, 0.0)
    counts = np.array([key not in away for key in keys])
    kept = [one for one, is_kept in zip(updates, counts.tolist(), strict=True) if is_kept]
    return Updates(kept, {model: gram.of(counts[members]) for model, (members, gram) in grams.items()})


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
    if entered := sorted(quarantine.entered):
        clients = f"client {named(entered)} is" if len(entered) == 1 else f"clients {named(entered)} are"
        found[ADVICE] = (
            f"{clients} in quarantine from round {context.server_round} on: updates departed from the group's in "
            f"{ROUNDS} rounds running or equal another client's, or losses or gradients departed from all others'. "
            f"Such a client is sent models and tested, and counts again once {ROUNDS} updates running agree; look at "
            "its data and its node"
        )
    return found
