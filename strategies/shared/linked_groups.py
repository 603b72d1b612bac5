"""Groups of clients that are found once, from their distances to each other, and that later clients extend."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.state import State
from florets.strategies.core import FloatArray
from florets.strategies.core.agglomerative import Grouping, group_below, group_by_largest_gap, group_into
from florets.strategies.core.kept_models import extended
from florets.strategies.shared.tree_settings import TreeSettings
from florets.task.wire.replies import Update

D = TypeVar("D")


class Distances(Protocol[D]):
    """How clients are described, how far apart two descriptions are, and how the tree is made."""

    settings: Any
    k: int | Literal["auto"] | None

    @property
    def linkage(self) -> str:
        """One of `agglomerative.LINKAGES`."""

    def describe(self, clients: Sequence[Client], context: Round) -> Replies[D]:
        """Ask clients to describe themselves (one exchange)."""

    def distances(self, clients: Sequence[D]) -> FloatArray:
        """Return the clients' distances (M, M)."""


@dataclass
class LinkedGroups(State):
    """What is remembered of the groups: what every client told of itself, and where the tree was cut.

    Attributes
    ----------
    descriptions
        By client key; a reply is checked before it is kept.
    threshold
        Distance at which the tree of the first round was cut, None before it.
    start
        The model that every group starts from.
    """

    phase: str = "clustering"
    descriptions: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    start: Models | None = None

    def plan(self, algorithm: Distances[D], context: Round) -> Plan[Update]:
        """Find the groups, or place later clients; then every participant trains its group's model."""
        models = self.assign(algorithm, context)
        return replace(replace(context, models=models).train_assigned(self.assignment), models=models)

    def assign(self, algorithm: Distances[D], context: Round) -> Models:
        """Find the groups, or place later clients; return the models, one for each group.

        First everybody online is asked, not only this round's participants. After that, participants without a model
        are asked when they take part, those whose description was lost or invalid before among them: the tree of all
        clients is made anew and cut at the same distance, and a later client joins the model that most of its cluster
        have. A cluster of later clients alone starts a model of its own. Nobody who has a model changes it.

        Raises
        ------
        RoundFailed
            If the descriptions that the groups are formed of stay below the quorum. Later ones need none.
        """
        first = self.threshold is None
        self.phase = "clustering" if first else "stable"
        if self.start is None:
            self.start = context.models.replaced(context.models.bank[:1])
        new = list(context.online)
        if not first:
            new = [client for client in context.participants if client.key not in self.assignment]
        if not new:
            return context.models
        with context.meter.part("describe"):
            replies = algorithm.describe(new, context)
        if first:
            context.require(replies, "description")
        self.descriptions.update(replies.ok)
        if not replies.ok:
            return context.models
        with context.meter.part("cluster"):
            keys = sorted(self.descriptions)
            distances = algorithm.distances([self.descriptions[key] for key in keys])
            context.note_vectors("distances", keys, distances)
            grouping = self._group(algorithm, distances)
            before = np.array([self.assignment.get(key, -1) for key in keys], dtype=np.int64)
            placed = extended(grouping.clusters, before)
        self.threshold = grouping.threshold
        self.assignment.update({key: int(model) for key, model in zip(keys, placed, strict=True)})
        models = self.start if first else context.models
        started = np.repeat(self.start.bank, int(placed.max()) + 1 - models.count, axis=0)
        return models.replaced(np.concatenate([models.bank, started])) if len(started) else models

    def _group(self, algorithm: Distances[D], distances: FloatArray) -> Grouping:
        settings: TreeSettings = algorithm.settings
        threshold = settings.threshold if self.threshold is None else self.threshold
        if threshold is not None:
            return group_below(distances, threshold, algorithm.linkage)
        if settings.cut == "k":
            return group_into(distances, int(algorithm.k or 1), algorithm.linkage)
        return group_by_largest_gap(distances, algorithm.linkage, settings.smallest_group)
