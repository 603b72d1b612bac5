"""Discovery: find the groups in round 1 by updates on folds of the clients' data, then FedAvg in each group."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.base.report import STABLE_FROM
from florets.strategies.base.round import Round, Steps, opened
from florets.strategies.core import FloatArray
from florets.strategies.discovery.settings import DiscoverySettings, DiscoveryState
from florets.strategies.discovery.waiting import REGRESSION, Waiting
from florets.strategies.shared.fold_round import Evidence, FoldRound, Found
from florets.strategies.starts.updates import group_models
from florets.task.wire.leaving import FOLDS, MODELS


class Discovery(Waiting):
    """Groups found by cross-validation over folds of each client's data, and FedAvg within them.

    In round 1 every client trains the one common model twice: on all its data, which is averaged, and on disjoint
    folds, of which it sends compressed changes. Groups count as such if their centres predict the held-out
    folds; the mean of a group's updates is its first model, so that no second download is needed. Where there are
    none, or every client differs from every other, one model is trained as in FedAvg.

    With `subgroups` each leaf of the tested tree of groups within groups has a model. What the members of a group
    have in common is in the mean update of each of its leaves, so a leaf starts from its parent's first model, moved
    by what its own members learned in addition.

    Newcomers train the kept common model and join the group with the nearest centre, or are told that none fits.
    Where rounds sample the clients, the common model is kept and groups are looked for once enough of them have taken
    part; until then one model is trained.

    Where the initial model is far from every group's, what updates share can hide how they differ. In a regression
    the common model is therefore trained by FedAvg until the mean updates of two rounds have nothing in common; with
    `first_look` it is that of a given round.

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
        if self.waits(r):
            state.phase = "training"
            if self.settings.first_look is None and r.server_round == 1:
                self._report(Evidence("open"))
            self.assignment.update({client.key: 0 for client in r.participants})
            updates = yield r.train(dict(self.assignment))
            self.note_move(updates, r)
            return r.average(updates)
        if not state.frozen:
            state.phase = "discovery"
            return (yield from self._look(r))
        if self._is_due(r.server_round):
            r.models = self._look_again(r)
        else:
            state.phase = "training" if state.centres is None else "stable"
        if r.clients_choose and state.centres is not None:
            updates = yield r.train_best()
            return r.average(updates)
        self.place_newcomers(r)
        self.place_anew(r)
        self.with_somebody(r)
        updates = yield r.train(dict(self.assignment))
        return r.average(updates)

    def _look(self, r: Round) -> Steps:
        """Let participants send what they learn on their folds; look for groups once enough have."""
        given = self.settings
        if self.state.folds is None:
            trained = self.loss in REGRESSION and r.server_round > 1
            self.state.folds = FoldRound.begin(
                r,
                *(given.fold_upload, trained, given.place_one_class, self.k == "auto"),
                given.fold_size,
            )
        folds = self.state.folds
        updates = opened((yield folds.train(r)))
        folds.take(updates)
        self.state.looks += 1
        needed = self.needed(folds, r) if r.may_depend_on_data else 0
        if len(folds.rows) < needed:
            self._report(Evidence("open", seen=len(folds.rows), needed=needed))
            return group_models(r, updates, self.assignment, 1)
        with r.meter.part("discover"):
            copies = r.copies(folds.rows)
            found = self._decide(folds, r)
        self.assignment.clear()
        groups = self._freeze(found)
        honest = {groups.get(key) for key, _ in updates if key not in copies}
        counted = [(key, update) for key, update in updates if key not in copies or groups.get(key) not in honest]
        return group_models(r, counted, groups, found.count)

    def _decide(self, folds: FoldRound, r: Round) -> Found:
        k = self.k if isinstance(self.k, int) else None
        given = self.settings
        return folds.decide(k, r, given.level, given.least_gain, given.subgroups)

    def _freeze(self, found: Found) -> dict[str, int]:
        """Freeze what was found; return the clients' groups."""
        state = self.state
        assert state.folds is not None
        state.unsure = {}
        if found.centres is not None:
            self.note_unsure(state.folds.small)
        state.folds, state.frozen, state.centres = state.folds.emptied(), True, found.centres
        state.unfit = set()
        self.assignment.update(found.assignment)
        self._report(found.evidence)
        return found.assignment

    def _report(self, evidence: Evidence) -> None:
        self.state.details = evidence.details()
        if evidence.verdict == "groups":
            self.state.details[STABLE_FROM] = self.context.server_round + 1

    def _is_due(self, server_round: int) -> bool:
        every = self.settings.rediscover_every
        return every > 0 and (server_round - 1) % every == 0

    def _look_again(self, r: Round) -> Models:
        """Look for groups among all clients that are there; return each group's mean of its members' models.

        The common model is still the first one: it tells clients' data apart as it did then, and newcomers are placed
        by it.
        """
        state, models = self.state, r.models
        assert state.folds is not None
        state.phase = "discovery"
        with r.meter.part("describe"):
            replies = state.folds.ask_again(r)
            r.require(replies, "rows of folds")
        with r.meter.part("discover"):
            state.folds.take(replies.ok)
            found = self._decide(state.folds, r)
        earlier = dict(self.assignment)
        self.assignment.clear()
        self._freeze(found)
        members: list[list[int]] = [[] for _ in range(found.count)]
        for key, group in found.assignment.items():
            if key in earlier:
                members[group].append(earlier[key])
        return models.replaced(np.stack([_mean_model(models.bank, of) for of in members]))


def _mean_model(bank: FloatArray, members: Sequence[int]) -> FloatArray:
    """Return the mean of the members' models; for an empty group, the mean of all models."""
    # To the last bit, where they have one and the same.
    rows = members[:1] if len(set(members)) == 1 else members
    mean: FloatArray = (bank[list(rows)] if rows else bank).mean(axis=0)
    return mean
