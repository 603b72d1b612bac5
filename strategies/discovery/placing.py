"""`Placing`: groups for newcomers and for clients with too few samples for folds."""

import math
from collections.abc import Iterable

import numpy as np

from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import ADVICE
from florets.strategies.base.round import Round
from florets.strategies.base.strategy import Strategy
from florets.strategies.discovery.settings import DiscoverySettings, DiscoveryState
from florets.strategies.shared.fold_round import no_group_fits
from florets.task.randomness import Purpose

_TRAINED = 5
"""Rounds that the groups' models train before clients with few samples are placed by their losses."""


class Placing(Strategy[DiscoverySettings, DiscoveryState]):
    """How newcomers find their group."""

    def frozen_clusters(self) -> Frozen | None:
        """Return the groups, and the model by which they were found."""
        state = self.state
        return None if state.folds is None or state.centres is None else state.folds.frozen(state.centres)

    def place_newcomers(self, r: Round) -> None:
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
        self.note_unsure(one.key for one in new if one.key in placed and folds.sure_size_of(one) == 0)
        if unfit:
            state.unfit |= unfit
            state.details[ADVICE] = no_group_fits(sorted(unfit))

    def note_unsure(self, keys: Iterable[str]) -> None:
        """Note clients to place again once the groups' models have trained."""
        self.state.unsure |= dict.fromkeys(sorted(keys), self.context.server_round + _TRAINED)

    def place_anew(self, r: Round) -> None:
        """Place clients with few samples once more, by their losses of the groups' models.

        One row of ten samples is mostly noise. The losses of models trained on the groups' data tell the same samples
        apart, and the client's own part in these models is as small as its data.
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

    def with_somebody(self, r: Round) -> None:
        """Draw as many other clients where none of those drawn has a group."""
        able = [client for client in r.online if client.key in self.assignment]
        if not able or any(client.key in self.assignment for client in r.participants):
            return
        count = min(len(r.participants), len(able))
        drawn = r.random(Purpose.PARTICIPATION).choice(len(able), size=count, replace=False)
        r.participants = [able[index] for index in sorted(drawn)]
