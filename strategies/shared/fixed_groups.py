"""Groups of clients that are found once, before training, and stay: what one-shot clustering and k-FED share."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client, State
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.settings import Settings
from florets.task.wire.replies import Update


@dataclass
class FixedGroups(State):
    """What is remembered of the groups: nothing before the first round, then their centroids for good.

    Attributes
    ----------
    centroids
        (C, D), None until the groups are there.
    """

    phase: str = "clustering"
    centroids: FloatArray | None = None


S = TypeVar("S", bound=Settings)
G = TypeVar("G", bound=FixedGroups)


class FixedClusters(Strategy[S, G]):
    """Clients grouped once, before training; a subclass says how they are described and groups formed."""

    @abstractmethod
    def describe(self, clients: Sequence[Client], context: Round) -> Replies[Any]:
        """Ask clients to describe themselves (one exchange)."""

    @abstractmethod
    def form(self, clients: Sequence[Any], context: Round) -> tuple[IntArray, FloatArray]:
        """Return the groups (M,) of the clients, numbered from 0, and the groups' centroids (C, D)."""

    @abstractmethod
    def place(self, client: Any, centroids: FloatArray) -> int:
        """Return the group of one more client."""

    def plan(self, context: Round) -> Plan[Update]:
        """Find the groups, or place newcomers; then every participant trains its group's model."""
        self.assignment.update(self._assign(context))
        return context.train_assigned(self.assignment)

    def _assign(self, context: Round) -> dict[str, int]:
        """Return the model of each client that gets one in this round: group g trains model g.

        First everybody online is asked, not only this round's participants: the clustering cannot be mended later.
        After that, participants without a model are asked when they take part, those whose description was lost or
        invalid before among them.
        """
        state = self.state
        state.phase = "clustering" if state.centroids is None else "stable"
        new = list(context.online)
        if state.centroids is not None:
            new = context.newcomers(self.assignment)
        if not new:
            return {}
        with context.meter.part("describe"):
            replies = self.describe(new, context)
        if state.centroids is None:
            context.require(replies, "description")
        keys, descriptions = [key for key, _ in replies.ok], [description for _, description in replies.ok]
        with context.meter.part("cluster"):
            if state.centroids is None:
                groups, state.centroids = self.form(descriptions, context)
            else:
                groups = np.array([self.place(one, state.centroids) for one in descriptions], dtype=np.int64)
        return {key: int(group) for key, group in zip(keys, groups, strict=True)}
