"""Groups found in round 1 by the updates of one model, in clear or in noised sums."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from florets.strategies.base.groups import opened
from florets.strategies.base.models import ModelAveraging, Updates
from florets.strategies.base.report import Client
from florets.strategies.base.round import Round, Steps
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.folds import update_groups
from florets.strategies.core.noised_groups import noised_groups
from florets.strategies.shared.fold_plan import FoldPlan
from florets.strategies.shared.fold_round import FoldRound, first_model
from florets.strategies.shared.messages import FoldUpdate
from florets.task.randomness import Purpose
from florets.task.wire.folds import RowForm
from florets.task.wire.replies import Update

Pairs = Sequence[tuple[str, Update]]
_NOISED, _NOISED_WIDTH = FoldPlan(folds=2, size=30, steps=4), 16
"""Folds of the search under central noise, and entries of a row."""


def changes_of(r: Round, updates: Pairs) -> FloatArray:
    """Return what training of model 0 changed in the trainable parameters, (P, R'); of gradients themselves."""
    start = r.models.bank[0] if isinstance(r.averaging, ModelAveraging) else 0.0
    return np.stack([(update.vector - start)[r.models.layout.trained] for _, update in updates])


def group_models(r: Round, updates: Pairs, groups: Mapping[str, int], count: int) -> FloatArray:
    """Return the next bank (count, R), averaged as the round averages, from updates of model 0.

    A client without a group counts for none; a group without updates gets the mean of all updates.
    """
    members = [(key, update) for key, update in updates if key in groups]
    everybody = _averaged(r, updates, np.zeros(len(updates), dtype=np.int64), 1)
    if not members:
        return np.repeat(everybody, count, axis=0)
    labels = np.array([groups[key] for key, _ in members], dtype=np.int64)
    bank = _averaged(r, members, labels, count)
    bank[np.setdiff1d(np.arange(count), labels)] = everybody[0]
    return bank


def _averaged(r: Round, updates: Pairs, models: IntArray, count: int) -> FloatArray:
    """Return the average (count, R) of the updates of each of `models` (P,), all trained from model 0."""
    start, rows = r.models.replaced(np.repeat(r.models.bank[:1], count, axis=0)), Updates(updates)
    return r.averaging.next_bank(start, rows, models, rows.examples)


def start_from_updates(strategy: Any, r: Round) -> Steps:
    """Run round 1: all participants train model 0, and each group found starts from its members' mean.

    K groups are cut from Ward's tree of the updates. With k=auto clients also send what they learn on folds of their
    data, which gives the number of groups. With noise, noised sums of such rows give the K groups.
    """
    if strategy.privacy is not None:
        return (yield from _start_from_noised_sums(strategy, r))
    if strategy.k == "auto":
        folds = FoldRound.begin(r)
        updates = yield folds.train(r)
        folds.take(updates)
        with r.meter.part("discover"):
            found = folds.decide(None, r)
        strategy.state.details |= found.evidence.details()
        groups, count = found.assignment, found.count
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


class NoisedFolds(FoldRound):
    """Rows for noised sums: two folds of a size that depends on no client's data."""

    def size_of(self, client: Client) -> int:
        """Return the samples of each fold."""
        return self.plan.size

    def rows_of(self, updates: Pairs) -> FloatArray:
        """Return the rows of clients' updates, (P, 2, width), 0 where there is none."""
        found = np.zeros((len(updates), self.plan.folds, self.form.width))
        for place, (_, update) in zip(found, updates, strict=True):
            assert isinstance(update, FoldUpdate)
            place[len(place) - len(update.rows) :] = update.rows
        return found


def _start_from_noised_sums(strategy: Any, r: Round) -> Steps:
    """Do as `start_from_updates`; who belongs to which group then only the server knows."""
    width, count = int(r.models.layout.trained.sum()), r.models.count
    folds = NoisedFolds(first_model(r), _NOISED, RowForm.of(_NOISED_WIDTH, width, _NOISED.folds), r.seed)
    updates = opened((yield folds.train(r)))
    keys, rows = [key for key, _ in updates], folds.rows_of(updates)
    labels = np.zeros(len(keys), dtype=np.int64)
    if count > 1:
        with r.meter.part("discover"):
            noised_sum = partial(strategy.privacy.noised_sum, keys)
            labels = noised_groups(rows, count, r.random(Purpose.FOLD_TEST), noised_sum)
    groups = dict(zip(keys, labels.tolist(), strict=True))
    strategy.assignment.update(groups)
    strategy.begins(groups, are_found=True)
    # Updates are released once, in the groups' sums.
    return _averaged(r, updates, labels, count)
