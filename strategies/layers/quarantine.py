"""Quarantine (`robust`): hostile clients' updates and rows do not count."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.exchange import log
from florets.strategies.base.groups import Cluster, Grouping, Groups, Rows
from florets.strategies.base.layer import Layer
from florets.strategies.base.models import ModelAveraging, Updates
from florets.strategies.base.report import ADVICE, QUARANTINE, Detail, named
from florets.strategies.base.round import Round
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import finite_losses
from florets.strategies.core.outliers import LEAST_CLIENTS, lower_median
from florets.strategies.core.quarantine import PROBATION, ROUNDS, Quarantine, far_rows, has_groups, lone_rows, placed
from florets.strategies.core.robust import (
    LONGEST,
    Gram,
    RobustRule,
    clip_factors,
    gram_of,
    most_expelled,
    most_hostile,
    shortened,
)
from florets.strategies.core.rows import Columns
from florets.task.randomness import Purpose


class Hostile(Layer):
    """Leaves out clients whose updates or rows depart from all others'; it adds to the robust rule for averages."""

    name = "quarantine"
    under_noise = True
    State = Quarantine

    def __init__(self, rule: RobustRule) -> None:
        self.rule = rule

    def begin(self, r: Round) -> None:
        quarantine: Quarantine = self.kept(r)
        quarantine.entered, quarantine.probation = [], set()

    def counted(self, updates: Updates, r: Round) -> Updates:
        """Judge a round's updates of several models; return those of clients that are not set aside."""
        models = r.models
        if models.count == 1:
            return updates
        quarantine: Quarantine = self.kept(r)
        trained = models.layout.trained
        changed = updates if trained.all() else Columns(updates, trained)
        keys, models_of, grams = updates.keys, updates.models, dict[int, tuple[IntArray, Gram]]()
        for model in sorted(set(models_of.tolist())):
            members = np.flatnonzero(models_of == model)
            start = models.bank[model, trained]
            start = start if isinstance(r.averaging, ModelAveraging) else np.zeros_like(start)
            gram = gram_of(changed, members, start, most_hostile(len(members), self.rule.hostile) + 1)
            grams[model] = members, gram
            here = [keys[row] for row in members]
            # Of the whole group: of a small part of it that takes part most may be hostile.
            group = {key for key, own in r.strategy.assignment.items() if own == model}.union(here)
            most = most_expelled(len(group), self.rule.hostile) - len(group & quarantine.clients)
            if back := quarantine.observe(model, here, gram.products, max(most, 0)):
                log.info(
                    "client %s has left quarantine: %d updates running agree with its group's", named(back), ROUNDS
                )
        away = quarantine.clients | quarantine.probation
        counts = np.array([key not in away for key in keys])
        kept = [one for one, is_kept in zip(updates.updates, counts.tolist(), strict=True) if is_kept]
        if r.averaging.note is not None:
            for key in away.intersection(keys):
                r.averaging.note(key, 0.0)
        return Updates(kept, {model: gram.of(counts[members]) for model, (members, gram) in grams.items()})

    def bounded(self, bank: FloatArray, r: Round) -> FloatArray:
        """Return averages none of which moves further than `LONGEST` times the median one.

        A random group may be mostly hostile by chance, which no rule within it detects.
        """
        trained = r.models.layout.trained
        changes = (bank - r.models.bank)[:, trained]
        lengths = np.linalg.norm(changes, axis=1)
        if lengths.any():
            factors = clip_factors(lengths, LONGEST * lower_median(lengths[lengths > 0]))
            bank[:, trained] -= changes * (1.0 - factors[:, np.newaxis])
        return bank

    def grouping(self, group: Grouping, r: Round) -> Grouping:
        """Group rows; those that are set aside join the nearest group afterwards."""

        def apart(keys: Sequence[str], rows: Rows, k: int, cluster: Cluster) -> Groups:
            values, aside = self._judge(keys, rows, k, r)
            return Groups(keys, values, placed(values, aside, cluster), aside)

        return apart

    def _judge(self, keys: Sequence[str], rows: Rows, k: int, r: Round) -> tuple[FloatArray, BoolArray]:
        """Judge rows; return those to group (M, D), and which are set aside (M,): those that would take a centroid.

        Lone ones (`lone_rows`) enter quarantine: of rows that are made of what the others have in common at once, of
        losses after `PROBATION` rounds since they were first far from all others', in which they are set aside; where
        nobody is, all that were far, if the others have `k` groups without them. A client that has left quarantine
        counts. Nobody is judged or set aside where there is one group, or are few.
        """
        quarantine: Quarantine = self.kept(r)
        now, most = r.server_round, most_expelled(len(keys), self.rule.hostile)
        aside, nobody = np.array([key in quarantine.clients for key in keys]), np.zeros(len(keys), dtype=np.bool_)
        values = _made(rows, aside)
        if k < 2:
            return values, nobody
        # As many as a group has may be an honest one.
        far = nobody.copy()
        far[~aside] = far_rows(values[~aside], max(min(most - int(aside.sum()), len(keys) // k - 1), 0))
        far_since = {keys[row]: now for row in np.flatnonzero(far).tolist()} | quarantine.far
        ages = np.array([now - far_since.get(key, now + 1) for key in keys])
        on_probation = (ages >= 0) & (ages < PROBATION)
        judged = np.full(len(keys), callable(rows)) | (ages >= PROBATION)
        while True:
            lone, left = nobody.copy(), max(most - int(aside.sum()), 0)
            lone[~aside] = lone_rows(values[~aside], k, left, r.random(Purpose.CLUSTERING))
            if not (lone & judged).any():
                break
            aside = aside | (lone & judged)
            values = _made(rows, aside)
        # Once far, they are judged when their probation ends, though the others may be as far apart by then.
        due = (ages == PROBATION) | (far & (ages > PROBATION))
        if not callable(rows) and not aside.any() and 0 < due.sum() <= most:
            others = values[~(due | on_probation)]
            aside = due if has_groups(others, k, r.random(Purpose.CLUSTERING)) else aside
        if (~(aside | on_probation)).sum() < max(k, LEAST_CLIENTS):
            return values, nobody
        quarantine.far = far_since
        quarantine.enter(
            {keys[row] for row in np.flatnonzero(aside).tolist()} - quarantine.clients - quarantine.cleared
        )
        quarantine.probation = {keys[row] for row in np.flatnonzero(on_probation).tolist()}
        return values, aside | on_probation

    def vectors(self, vectors: Mapping[str, NDArray[Any]], r: Round) -> Mapping[str, NDArray[Any]]:
        return shortened(vectors)

    def details(self, r: Round) -> Mapping[str, Detail]:
        quarantine: Quarantine = self.kept(r)
        if not quarantine.clients:
            return {}
        found: dict[str, Detail] = {QUARANTINE: {"clients": sorted(quarantine.clients)}}
        if entered := sorted(quarantine.entered):
            clients = f"client {named(entered)} is" if len(entered) == 1 else f"clients {named(entered)} are"
            found[ADVICE] = (
                f"{clients} in quarantine from round {r.server_round} on: updates departed from the group's in "
                f"{ROUNDS} rounds running, or losses or gradients departed from all others'. Such a client is "
                f"sent models and tested, and counts again once {ROUNDS} updates running agree; look at its data and "
                "its node"
            )
        return found


def _made(rows: Rows, aside: BoolArray) -> FloatArray:
    """Return rows (M, D); those made of what clients have in common, of those that are not set aside."""
    return rows(~aside) if callable(rows) else finite_losses(rows)
