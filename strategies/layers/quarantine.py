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
from florets.strategies.core.quarantine import ROUNDS, Quarantine
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
from florets.strategies.core.set_aside import drawn_in, far_rows, has_groups, lone_rows, placed
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
        quarantine.begin_round()

    def counted(self, updates: Updates, r: Round) -> Updates:
        """Judge a round's updates of several models; return those of clients that are not in quarantine."""
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
            # Of the whole group: of a small part of it that takes part most may be hostile.
            group = {key for key, own in r.strategy.assignment.items() if own == model}
            group |= {keys[row] for row in members}
            most = most_expelled(len(group), self.rule.hostile)
            most -= len(group & (quarantine.clients.keys() - set(keys)))
            grams[model] = members, gram
            back = quarantine.observe(model, [keys[row] for row in members], gram.products, most)
            if back:
                log.info(
                    "client %s has left quarantine: %d updates running agree with its group's", named(back), ROUNDS
                )
        away = {*quarantine.clients, *quarantine.probation}
        if r.averaging.note is not None:
            for key in keys:
                if key in away:
                    r.averaging.note(key, 0.0)
        counts = np.array([key not in away for key in keys])
        kept = [one for one, is_kept in zip(updates.updates, counts.tolist(), strict=True) if is_kept]
        return Updates(kept, {model: gram.of(counts[members]) for model, (members, gram) in grams.items()})

    def bounded(self, bank: FloatArray, r: Round) -> FloatArray:
        """Return averages none of which moves further than `LONGEST` times the median one.

        A random group may be mostly hostile by chance, which no rule within it detects.
        """
        trained = r.models.layout.trained
        changes = (bank - r.models.bank)[:, trained]
        lengths = np.linalg.norm(changes, axis=1)
        if not lengths.any():
            return bank
        factors = clip_factors(lengths, LONGEST * lower_median(lengths[lengths > 0]))
        bank[:, trained] -= changes * (1.0 - factors[:, np.newaxis])
        return bank

    def grouping(self, group: Grouping, r: Round) -> Grouping:
        """Group rows; those of clients in quarantine, and distant ones, join the nearest group afterwards."""

        def apart(keys: Sequence[str], rows: Rows, k: int, cluster: Cluster) -> Groups:
            nobody = np.zeros(len(keys), dtype=np.bool_)
            values, strangers = self._without_strangers(keys, rows, k, r) if callable(rows) else (rows, nobody)
            values, aside = self._bounded_rows(keys, values, k, strangers, r)
            return Groups(keys, values, placed(values, aside, cluster), aside)

        return apart

    def _bounded_rows(
        self, keys: Sequence[str], rows: FloatArray, num_clusters: int, strangers: BoolArray, r: Round
    ) -> tuple[FloatArray, BoolArray]:
        """Return rows (M, D) as they are to be clustered, and which of them are set aside and placed afterwards.

        Set aside are `strangers` (M,), clients in quarantine, and far rows in a client's first `PROBATION` rounds.
        After them far rows are in quarantine where the others have all groups without them, and are drawn in
        otherwise.
        """
        none = np.zeros(len(rows), dtype=np.bool_)
        # As many as a group has may be an honest one.
        most = min(most_expelled(len(rows), self.rule.hostile), max(len(rows) // max(num_clusters, 1) - 1, 0))
        rows = finite_losses(rows)
        quarantine: Quarantine = self.kept(r)
        far = far_rows(rows, most)
        if num_clusters < 2 or (~far).sum() <= num_clusters + 1:
            # Nothing can be said of so few, nor of one group.
            return rows, none
        now, looked_at = r.server_round, zip(keys, far.tolist(), strict=True)
        judged = {key for key, is_far in looked_at if quarantine.is_judged(key, is_far, now)}
        away = strangers | np.array([key in {*quarantine.clients, *quarantine.probation, *judged} for key in keys])
        if judged and has_groups(rows[~away], num_clusters, r.random(Purpose.CLUSTERING)):
            quarantine.enter(sorted(judged))
        away = strangers | np.array([key in quarantine.clients or key in quarantine.probation for key in keys])
        return drawn_in(rows, most), away if len(rows) - away.sum() >= max(num_clusters, LEAST_CLIENTS) else none

    def _without_strangers(
        self, keys: Sequence[str], rows: Rows, num_clusters: int, r: Round
    ) -> tuple[FloatArray, BoolArray]:
        """Return clients' rows (M, D), made of what the others have in common, and which are strangers (M,).

        Strangers (`lone_rows`) are in quarantine at once: they would take a centroid. One that has left quarantine
        counts.
        """
        assert callable(rows)
        away, quarantine = np.zeros(len(keys), dtype=np.bool_), self.kept(r)
        values = rows(~away)
        found = np.array([key in quarantine.clients for key in keys])
        most = most_expelled(len(keys), self.rule.hostile)
        while True:
            away |= found
            values = rows(~away) if found.any() else values
            found = np.zeros(len(keys), dtype=np.bool_)
            found[~away] = lone_rows(
                values[~away], num_clusters, most - int(away.sum()), r.random(Purpose.CLUSTERING)
            )
            if not found.any():
                break
        strangers = {key for key, is_away in zip(keys, away.tolist(), strict=True) if is_away}
        quarantine.enter(sorted(strangers - quarantine.clients.keys() - quarantine.cleared))
        return values, away

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
