"""Round 1 from one model: its updates give the groups, and each group starts from the mean of its own."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from florets.strategies.base.models import ModelAveraging, Updates
from florets.strategies.base.round import Plan, Round, Steps, opened
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.folds import update_groups
from florets.strategies.shared.fold_round import FoldRound
from florets.task.wire.replies import Update

Pairs = Sequence[tuple[str, Update]]
FoldSteps = Generator[Plan[Update], Pairs, tuple[Mapping[str, int], int, Pairs]]


def changes_of(r: Round, updates: Sequence[tuple[str, Update]]) -> FloatArray:
    """Return what training of model 0 changed in the trainable parameters, (P, R'); of gradients themselves."""
    start = r.models.bank[0] if isinstance(r.averaging, ModelAveraging) else 0.0
    return np.stack([(update.vector - start)[r.models.layout.trained] for _, update in updates])


def group_models(
    r: Round, updates: Sequence[tuple[str, Update]], groups: Mapping[str, int], count: int
) -> FloatArray:
    """Return the next bank (count, R), averaged as the round averages, from updates of model 0.

    A client without a group counts for none; a group without updates gets the mean of all updates.
    """

    def averaged(chosen: Sequence[tuple[str, Update]], models: IntArray, rows: int) -> FloatArray:
        start = r.models.replaced(np.repeat(r.models.bank[:1], rows, axis=0))
        return r.averaging.next_bank(start, Updates(chosen), models, Updates(chosen).examples)

    members = [(key, update) for key, update in updates if key in groups]
    if members and r.privacy is not None:
        # Updates are released once; a group without members has a mean of noise alone.
        return averaged(members, np.array([groups[key] for key, _ in members], dtype=np.int64), count)
    everybody = averaged(updates, np.zeros(len(updates), dtype=np.int64), 1)
    if not members:
        return np.repeat(everybody, count, axis=0)
    labels = np.array([groups[key] for key, _ in members], dtype=np.int64)
    bank = averaged(members, labels, count)
    bank[np.setdiff1d(np.arange(count), labels)] = everybody[0]
    return bank


def start_from_updates(strategy: Any, r: Round) -> Steps:
    """Run round 1: all participants train model 0, and each group found starts from its members' mean.

    One model is sent, where losses need K, and groups differ as their data do, not as K random models do. K groups
    are cut from Ward's tree of the updates. With k=auto choose_k=folds clients also send what they learn on folds of
    their data, which gives the number of groups (`strategies.discovery`); one, if there are none. With noise, noised
    sums of these rows give the K groups.
    """
    if strategy.k == "auto" or r.privacy is not None:
        groups, count, updates = yield from _by_folds(strategy, r)
    else:
        count = r.models.count if strategy.k is None else strategy.k
        updates = yield r.train({client.key: 0 for client in r.participants})
        changes = changes_of(r, updates)
        r.note_vectors("updates", [key for key, _ in updates], changes)
        labels = update_groups(changes, count)
        groups = {key: int(group) for (key, _), group in zip(updates, labels, strict=True)}
    strategy.assignment.update(groups)
    strategy.begins(groups, are_found=True)
    return group_models(r, updates, groups, count)


def _by_folds(strategy: Any, r: Round) -> FoldSteps:
    folds = FoldRound.begin(r)
    updates = opened((yield folds.train(r)))
    folds.take(updates)
    with r.meter.part("discover"):
        found = folds.decide(None if strategy.k == "auto" else r.models.count, r)
    strategy.state.details |= found.evidence.details()
    return found.assignment, found.count, updates
