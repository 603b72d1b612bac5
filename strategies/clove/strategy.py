"""CLoVE: cluster the clients by their loss vectors, match clusters to models, train one model per client."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.exchange import Replies
from florets.strategies.base.frozen_clusters import FrozenClusters
from florets.strategies.base.report import STABLE_FROM, Client, Detail
from florets.strategies.base.state import State
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.clove.settings import CloveSettings
from florets.strategies.clove.stability import Histories
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.choose_k import choose_k
from florets.strategies.core.cluster import cluster
from florets.strategies.core.matching import match_in_order, match_min_cost, match_overlap
from florets.strategies.core.outliers import absurd_losses, loss_scale
from florets.strategies.shared.first_round import draw_models
from florets.task.randomness import Purpose
from florets.task.wire import is_stable
from florets.task.wire.replies import Losses, Update


@dataclass
class CloveState(State):
    """What CLoVE remembers.

    Attributes
    ----------
    histories
        Last assignments of each client.
    known
        Latest embedded loss vector of each client that takes part in the clustering.
    clustered
        Clients that a clustering has placed.
    frozen
        The clusters at the moment of stability; None before.
    settled
        Clients that were stable then, or have been placed since.
    loss_scale
        Largest scale of the losses so far (`core.outliers`).
    """

    phase: str = "clustering"
    histories: Histories = field(default_factory=Histories)
    known: dict[str, FloatArray] = field(default_factory=dict)
    clustered: set[str] = field(default_factory=set)
    frozen: FrozenClusters | None = None
    settled: set[str] = field(default_factory=set)
    loss_scale: float = 0.0


class Clove(ClusteredStrategy[CloveSettings, CloveState]):
    """Clustering of loss vector embeddings.

    Raises
    ------
    ValueError
        In round 1, if the initial arrays hold fewer models than `k`.

    Source: CLoVE, Alg. 1 and 2.
    """

    Settings = CloveSettings
    State = CloveState

    def details(self) -> dict[str, Detail]:
        """Return `stable_from`, the next round, in the round that froze the clustering; it may be the run's last."""
        froze = self.state.frozen is not None and self.state.phase != "stable"
        return {STABLE_FROM: self.context.server_round + 1} if froze else {}

    def plan(self, context: RoundContext) -> Plan[Update]:
        """Assign every participant a model (l. 4 to 17), then train it (l. 18 to 22)."""
        if self.state.frozen is not None:
            self.state.phase = "stable"
            ready = self._assign_newcomers(self.state.frozen, context)
        elif context.server_round == 1 and self.first_round == "random":
            ready = draw_models(context.participants, context.models.count, context.random(Purpose.FIRST_ROUND))
            self.state.histories.add(ready, self.settings.stability_rounds)
        else:
            # A client whose loss vector was lost sits this round out: nobody has matched it to a model.
            ready = self._assign_by_losses(context)
        self.assignment.update(ready)
        return context.train_assigned(ready)

    def _assign_by_losses(self, context: RoundContext) -> dict[str, int]:
        """Alg. 1, l. 5 to 13, and the paper's check for stability."""
        with context.meter.part("losses"):
            replies = context.ask_losses(
                context.participants, context.models, self.state.histories, self.settings.stability_rounds
            )
        replies = context.reject(
            replies, self._with_absurd_losses(replies), "its losses are out of all proportion to the others'"
        )
        context.require(replies, "loss vector")
        with context.meter.part("cluster"):
            fresh = {key: self._embed(reply.losses) for key, reply in replies.ok}
            self.state.known = {**self.state.known, **fresh} if self.settings.memory else fresh
            keys = sorted(self.state.known)
            vectors = np.stack([self.state.known[key] for key in keys])
            clusters = self._cluster(vectors, context)
            model_of_cluster = self._match(vectors, clusters, keys, context.models.count)
            found = {key: int(model_of_cluster[c]) for key, c in zip(keys, clusters, strict=True)}
        # Deviation: a declaration counts only if this round's clustering keeps the client where it was. The client
        # declares before that clustering is known, and it is this clustering that would be frozen.
        stable = {key for key, reply in replies.ok if reply.stable and found[key] == self.assignment.get(key)}
        ready = {key: found[key] for key in fresh}
        self.assignment.update(found)
        self.state.clustered |= found.keys()
        self.state.histories.add(ready, self.settings.stability_rounds)
        if self.settings.stop_when_stable and self._is_stable(len(stable), context, model_of_cluster):
            self.state.frozen = FrozenClusters.of(
                context.models, vectors, clusters, model_of_cluster, self.settings.square_root
            )
            absent = self.state.clustered - ready.keys()
            length = self.settings.stability_rounds
            self.state.settled = stable | {
                key for key in absent if is_stable(self.state.histories.get(key, ()), length)
            }
        return ready

    def _with_absurd_losses(self, replies: Replies[Losses]) -> set[str]:
        if self.settings.outlier_loss is None or not replies.ok:
            return set()
        losses = np.stack([reply.losses for _, reply in replies.ok])
        self.state.loss_scale = max(self.state.loss_scale, loss_scale(losses))
        mask = absurd_losses(losses, self.state.loss_scale, self.settings.outlier_loss)
        return {key for (key, _), absurd in zip(replies.ok, mask, strict=True) if absurd}

    def _is_stable(self, declared: int, context: RoundContext, model_of_cluster: IntArray) -> bool:
        # A model without a centroid could never be given to a newcomer, nor any of its clients be placed again.
        in_use = {self.assignment[key] for key in self.state.clustered}
        covered = in_use <= set(model_of_cluster.tolist())
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return covered and declared >= self.settings.stability_fraction * len(context.participants) - 1e-9

    def _embed(self, losses: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(losses, 0.0)) if self.settings.square_root else losses

    def _cluster(self, vectors: FloatArray, context: RoundContext) -> IntArray:
        k = context.models.count if self.k is None else self.k
        if k == "auto":
            rng = context.random(Purpose.CHOOSE_K)
            k = choose_k(
                vectors, context.models.count, self.choose_k or "silhouette", self.settings.k_min_improvement, rng
            )
        return cluster(vectors, k, self.settings.clustering, context.random(Purpose.CLUSTERING))

    def _match(self, vectors: FloatArray, clusters: IntArray, keys: Sequence[str], num_models: int) -> IntArray:
        if self.settings.matching == "min_cost":
            return match_min_cost(vectors, clusters)
        if self.settings.matching == "overlap":
            previous = np.array([self.assignment.get(key, -1) for key in keys])
            return match_overlap(clusters, previous, num_models)
        return match_in_order(int(clusters.max()) + 1, num_models)

    def _assign_newcomers(self, frozen: FrozenClusters, context: RoundContext) -> dict[str, int]:
        """Alg. 1, l. 16: nearest saved centroid, with loss vectors taken on the models saved at stability."""
        new = [client for client in context.participants if self._is_open(client)]
        if new:
            with context.meter.part("losses"):
                replies = context.ask_losses(new, frozen.models)
            for key, reply in replies.ok:
                self.assignment[key] = frozen.nearest_model(reply.losses)
                self.state.clustered.add(key)
                self.state.settled.add(key)
        return {
            client.key: self.assignment[client.key] for client in context.participants if not self._is_open(client)
        }

    def _is_open(self, client: Client) -> bool:
        # A model drawn at random in round 1 says nothing of where the client belongs.
        return client.key not in (self.state.settled if self.settings.reassign_unstable else self.state.clustered)

    def frozen_clusters(self) -> FrozenClusters | None:
        """Return the clusters at the moment of stability."""
        return self.state.frozen
