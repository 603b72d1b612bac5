"""Groups of clients that are found once, before training, and stay: what one-shot clustering and k-FED share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from florets.strategies.base.context import Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client, State
from florets.strategies.core import FloatArray, IntArray

D = TypeVar("D")


class Grouping(Protocol[D]):
    """How clients are described, and groups formed of the descriptions."""

    def describe(self, clients: Sequence[Client], context: Round) -> Replies[D]:
        """Ask clients to describe themselves (one exchange)."""

    def form(self, clients: Sequence[D], context: Round) -> tuple[IntArray, FloatArray]:
        """Return the groups (M,) of the clients, numbered from 0, and the groups' centroids (C, D)."""

    def place(self, client: D, centroids: FloatArray) -> int:
        """Return the group of one more client."""


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

    def assign(self, grouping: Grouping[D], context: Round) -> dict[str, int]:
        """Return the model of each client that gets one in this round: group g trains model g.

        First everybody online is asked, not only this round's participants: the clustering cannot be mended later.
        After that, participants without a model are asked when they take part, those whose description was lost or
        invalid before among them.

        Raises
        ------
        RoundFailed
            If the descriptions that the groups are formed of stay below the quorum. Later ones need none: whoever is
            still without a model is asked again.
        """
        self.phase = "clustering" if self.centroids is None else "stable"
        new = list(context.online)
        if self.centroids is not None:
            new = [client for client in context.participants if client.key not in self.assignment]
        if not new:
            return {}
        with context.meter.part("describe"):
            replies = grouping.describe(new, context)
        if self.centroids is None:
            context.require(replies, "description")
        keys, descriptions = [key for key, _ in replies.ok], [description for _, description in replies.ok]
        with context.meter.part("cluster"):
            if self.centroids is None:
                groups, self.centroids = grouping.form(descriptions, context)
            else:
                groups = np.array([grouping.place(one, self.centroids) for one in descriptions], dtype=np.int64)
        return {key: int(group) for key, group in zip(keys, groups, strict=True)}
