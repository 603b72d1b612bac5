"""Groups found once, before training, and frozen from then on."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client, State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.settings import Settings


@dataclass
class OnceState(State):
    """State of an algorithm that groups clients once."""

    phase: str = "clustering"
    frozen: bool = False


S = TypeVar("S", bound=Settings)
Once = TypeVar("Once", bound=OnceState)


class GroupedOnce(Strategy[S, Once]):
    """Clients grouped once, before training; a subclass defines how they are described and grouped."""

    @abstractmethod
    def describe(self, clients: Sequence[Client], r: Round) -> Replies[Any]:
        """Ask clients to describe themselves (one exchange)."""

    @abstractmethod
    def admit(self, replies: Replies[Any], r: Round) -> Models:
        """Give clients a group by their descriptions, at least one; return the models, one for each group."""

    @property
    def is_frozen(self) -> bool:
        """Whether the groups are frozen."""
        return self.state.frozen

    def round(self, r: Round) -> Steps:
        """Find the groups, or place newcomers; then every participant trains its group's model.

        At first everybody online is asked, because the clustering cannot be corrected later.
        """
        state = self.state
        state.phase = "stable" if state.frozen else "clustering"
        new = r.newcomers(self.assignment) if state.frozen else r.online
        if new:
            with r.meter.part("describe"):
                replies = self.describe(new, r)
            if not state.frozen:
                r.require(replies, "description")
            if replies.ok:
                with r.meter.part("cluster"):
                    r.models = self.admit(replies, r)
                state.frozen = True
        updates = yield r.train(self.assignment)
        return r.average(updates)


@dataclass
class FrozenGroups(OnceState):
    """The groups' centroids (C, D); None before the first round."""

    centroids: FloatArray | None = None


G = TypeVar("G", bound=FrozenGroups)


class FrozenClusters(GroupedOnce[S, G]):
    """Clients grouped once; newcomers join by the groups' centroids. A subclass defines both steps."""

    @abstractmethod
    def form(self, clients: Sequence[Any], r: Round) -> tuple[IntArray, FloatArray]:
        """Return the groups (M,) of the clients, numbered from 0, and the groups' centroids (C, D)."""

    @abstractmethod
    def place(self, client: Any, centroids: FloatArray) -> int:
        """Return the group of a newcomer."""

    def admit(self, replies: Replies[Any], r: Round) -> Models:
        """Form the groups, or place newcomers: group g trains model g."""
        descriptions, centroids = [description for _, description in replies.ok], self.state.centroids
        if centroids is None:
            groups, self.state.centroids = self.form(descriptions, r)
        else:
            groups = np.array([self.place(one, centroids) for one in descriptions], dtype=np.int64)
        self.assignment.update({key: int(group) for (key, _), group in zip(replies.ok, groups, strict=True)})
        return r.models
