"""Discovery: find the groups in round 1 by updates on folds of the clients' data, then FedAvg in each group."""

import math
from collections.abc import Iterable

import numpy as np

from florets.strategies.base.groups import Frozen
from florets.strategies.base.report import ADVICE, STABLE_FROM
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.discovery.settings import DiscoverySettings, DiscoveryState
from florets.strategies.discovery.waiting import REGRESSION, move_of, moves_on, needed, shares_first
from florets.strategies.shared.first_updates import group_models
from florets.strategies.shared.fold_evidence import Evidence, no_group_fits
from florets.strategies.shared.fold_round import FoldRound, Found
from florets.task.randomness import Purpose
from florets.task.wire.leaving import FOLDS, MODELS

_TRAINED = 5
"""Rounds that the groups' models train before clients with few samples are placed by their losses."""


class Discovery(Strategy[DiscoverySettings, DiscoveryState]):
    """Groups found by cross-validation over folds of each client's data, and FedAvg within them.

    In round 1 every client trains the one common model twice: on all its data, which is averaged, and on disjoint
    folds, of which it sends compressed changes. Groups count as such if their centres predict the held-out
    folds; the mean of a group's updates is its first model, so that no second download is needed. Where there are
    none, or every client differs from every other, one model is trained as in FedAvg.

    Newcomers train the kept common model and join the group with the nearest centre, or are told that none fits.
    Where rounds sample the clients, the common model is kept and groups are looked for once enough of them have taken
    part; until then one model is trained.

    Where the initial model is far from every group's, what updates share can hide how they differ. In a regression
    the common model is therefore trained by FedAvg until the mean updates of two rounds have nothing in common.

    Source: see `strategies.core.folds` for the method and its theory.
    """

    leaving = (MODELS, FOLDS)
    Settings = DiscoverySettings
    State = DiscoveryState

    @property
    def is_frozen(self) -> bool:
        """Whether the search for groups has ended, with or without groups."""
        return self.state.frozen

    def round(self, r: Round) -> Steps:
        """Look for groups while there are none; then let every participant train its group's model."""
        state = self.state
        if state.moves_on and shares_first(r, self.loss):
            state.phase = "training"
            if r.server_round == 1:
                self._report(Evidence("open"))
            self.assignment.update({client.key: 0 for client in r.participants})
            updates = yield r.train(dict(self.assignment))
            move = move_of(r, updates)
            state.moves_on = state.move is None or moves_on(state.move, move)
            state.move = move if state.moves_on else None
            return r.average(updates)
        if not state.frozen:
            state.phase = "discovery"
            return (yield from self._look(r))
        state.phase = "training" if state.centres is None else "stable"
        self._place_newcomers(r)
        self._place_anew(r)
        self._with_somebody(r)
        updates = yield r.train(dict(self.assignment))
        return r.average(updates)

    def _look(self, r: Round) -> Steps:
        """Let participants send what they learn on their folds; look for groups once enough have."""
        given = self.settings
        if self.state.folds is None:
            trained = self.loss in REGRESSION and r.server_round > 1
            self.state.folds = FoldRound.begin(r, trained, given.place_one_class, self.k == "auto")
        folds = self.state.folds
        updates = yield folds.train(r)
        folds.take(updates)
        self.state.looks += 1
        k = self.k if isinstance(self.k, int) else None
        wanted = needed(folds, r, k, self.state.looks)
        if len(folds.rows) < wanted:
            self._report(Evidence("open", seen=len(folds.rows), needed=wanted))
            return group_models(r, updates, self.assignment, 1)
        with r.meter.part("discover"):
            found = folds.decide(k, r, given.level)
        self.assignment.clear()
        return group_models(r, updates, self._freeze(found), found.count)

    def _freeze(self, found: Found) -> dict[str, int]:
        """Freeze what was found; return the clients' groups."""
        state = self.state
        assert state.folds is not None
        if found.centres is not None:
            self._note_unsure(state.folds.small)
        state.folds, state.frozen, state.centres = state.folds.emptied(), True, found.centres
        self.assignment.update(found.assignment)
        self._report(found.evidence)
        return found.assignment

    def _report(self, evidence: Evidence) -> None:
        self.state.details = evidence.details()
        if evidence.verdict == "groups":
            self.state.details[STABLE_FROM] = self.context.server_round + 1

    def frozen_clusters(self) -> Frozen | None:
        """Return the groups, and the model by which they were found."""
        state = self.state
        return None if state.folds is None or state.centres is None else state.folds.frozen(state.centres)

    def _place_newcomers(self, r: Round) -> None:
        """Give participants without a model one; a client that no group fits, or whose rows were lost, sits out."""
        state = self.state
        new = r.newcomers(self.assignment.keys() | state.unfit)
        if state.centres is None:
            self.assignment.update({client.key: 0 for client in new})
            return
        if not new:
            return
        assert state.folds is not None
        with r.meter.part("place"):
            placed, unfit = state.folds.place(new, state.centres, r)
        self.assignment.update(placed)
        folds = state.folds
        self._note_unsure(one.key for one in new if one.key in placed and folds.sure_size_of(one) == 0)
        if unfit:
            state.unfit |= unfit
            state.details[ADVICE] = no_group_fits(sorted(unfit))

    def _note_unsure(self, keys: Iterable[str]) -> None:
        self.state.unsure |= dict.fromkeys(sorted(keys), self.context.server_round + _TRAINED)

    def _place_anew(self, r: Round) -> None:
        """Place clients with few samples once more, by their losses of the groups' models.

        One row of ten samples is mostly noise; these losses tell the same samples apart.
        """
        unsure = self.state.unsure
        due = [client for client in r.participants if unsure.get(client.key, math.inf) <= r.server_round]
        if not due:
            return
        with r.meter.part("place"):
            replies = r.ask_losses(due, r.models)
        for key, reply in replies.ok:
            if np.isfinite(reply.losses).any():
                self.assignment[key] = int(np.argmin(reply.losses))
            del unsure[key]

    def _with_somebody(self, r: Round) -> None:
        """Draw as many other clients where none of those drawn has a group."""
        able = [client for client in r.online if client.key in self.assignment]
        if not able or any(client.key in self.assignment for client in r.participants):
            return
        count = min(len(r.participants), len(able))
        drawn = r.random(Purpose.PARTICIPATION).choice(len(able), size=count, replace=False)
        r.participants = [able[index] for index in sorted(drawn)]
