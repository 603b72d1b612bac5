"""`MeanGroups`: clients whose data have similar means share a model. A strategy of florets in its own package."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.state import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.core.cluster import cluster
from florets.strategies.settings import ManyModels, setting
from florets.task.randomness import Purpose
from florets.task.wire import Layout, kinds
from florets.task.wire.layout import Vector
from florets.task.wire.replies import Update, reply_metrics, update_vector


@dataclass(frozen=True)
class MeanGroupsSettings(ManyModels):
    """Clients send the mean of their inputs or labels, k-means groups these once, then FedAvg in each group."""

    compare: Literal["inputs", "labels"] = setting(
        "inputs", "what is averaged: the inputs, or the classes' frequencies"
    )


@dataclass
class Means(State):
    """What is remembered: every client's mean, by its key."""

    means: dict[str, Vector] = field(default_factory=dict)


class MeanGroups(Strategy[MeanGroupsSettings, Means]):
    """Group clients by the means of their data, then average the models of each group.

    A mean tells something of the data, as k-FED's centres do.
    """

    Settings = MeanGroupsSettings
    State = Means
    client_handlers: ClassVar = ("mean_groups.handlers:mean",)

    def plan(self, context: Round) -> Plan[Update]:
        """Ask new clients for their means and place them; then every participant trains its group's model."""
        new = [client for client in context.online if client.key not in self.state.means]
        settings, handler = {"compare": self.settings.compare}, self.client_handlers[0]
        requests = [context.request_custom(handler, one, settings=settings, category="query") for one in new]
        replies = context.ask(requests, lambda _, content: self._read(content))
        known, means = dict(self.assignment), dict(replies.ok)
        if not known:
            context.require(replies, "mean")
            vectors, rng = np.stack(list(means.values())), context.random(Purpose.CLUSTERING)
            groups = cluster(vectors, context.models.count, "kmeans", rng)
            self.assignment.update(zip(means, map(int, groups), strict=True))
        else:
            for one, mean in means.items():
                nearest = min(known, key=lambda other: float(np.linalg.norm(self.state.means[other] - mean)))
                self.assignment[one] = known[nearest]
        self.state.means.update(means)
        return context.train_assigned(self.assignment)

    def _read(self, content: RecordDict) -> Vector:
        """Check a reply's records, names, shape and values: nothing that a client sends is trusted."""
        reply_metrics(content, {kinds.NUM_EXAMPLES}, arrays=True)
        length = math.prod(self.input_shape) if self.settings.compare == "inputs" else self.num_outputs
        expected = Layout.of(ArrayRecord({"mean": Array(np.zeros(length, dtype=np.float32))}))
        return update_vector(content, expected)
