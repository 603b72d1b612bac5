"""CLoVE: cluster the clients by their loss vectors, match clusters to models, train one model per client."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import STABLE_FROM, Client, Detail
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.clove.stability import FrozenClusters, Histories
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.choose_k import choose_k
from florets.strategies.core.cluster import cluster
from florets.strategies.core.matching import match_in_order, match_min_cost, match_overlap
from florets.strategies.core.outliers import LOSS_FACTOR, absurd_losses, loss_scale
from florets.strategies.shared.first_round import FirstRound, draw_models
from florets.task.randomness import Purpose
from florets.task.wire import is_stable
from florets.task.wire.replies import Losses


class Clove(ClusteredStrategy):
    """Clustering of loss vector embeddings.

    Parameters
    ----------
    k
        Number of clusters, or "auto": chosen each round by Alg. 2, at most the number of models.
    first_round
        "random": in round 1 each client trains a random model. "evaluate": loss vectors from round 1 on.
    clustering
        "kmeans" or "agglomerative" (Ward).
    choose_k, k_min_improvement
        Rule for k="auto" ("silhouette" or "elbow"), and the least relative improvement that a larger K must bring
        (negative: the loss that it may cost).
    matching
        How clusters get their models: "min_cost" on summed losses, "overlap" with the last assignment, or "none"
        (clusters in the order of their smallest client key get models 0, 1, ...).
    square_root
        Use the square roots of the losses, for clustering and matching, as the paper's theory does.
    stop_when_stable, stability_rounds, stability_fraction
        Freeze the clustering once this share of a round's participants declares that their last `stability_rounds`
        assignments are equal; False keeps clustering on for ever. It is not frozen in a round that lacks a cluster
        whose model other clients use.
    reassign_unstable
        After the freeze, also reassign clients that were not stable themselves, once each.
    memory
        Cluster the latest known loss vectors of all clients seen, not only those of this round's participants.
    absurd_loss
        A client whose best loss is more than this many times the worst loss of the median client counts as faulty
        and is not clustered (`core.absurd`): k-means would give it a cluster of its own. None clusters everybody.
    common
        Parameters of `ClusteredStrategy`; the number of models is that of the initial arrays.

    Raises
    ------
    ValueError
        In round 1, if the initial arrays hold fewer models than `k`.

    Source: CLoVE, Alg. 1 and 2.
    """

    def __init__(
        self,
        *,
        k: int | Literal["auto"],
        first_round: FirstRound = "random",
        clustering: Literal["kmeans", "agglomerative"] = "kmeans",
        choose_k: Literal["silhouette", "elbow"] = "silhouette",
        k_min_improvement: float = 0.0,
        matching: Literal["min_cost", "overlap", "none"] = "min_cost",
        square_root: bool = False,
        stop_when_stable: bool = True,
        stability_rounds: int = 3,
        stability_fraction: float = 1.0,
        reassign_unstable: bool = False,
        memory: bool = False,
        absurd_loss: float | None = LOSS_FACTOR,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.k = k
        self.first_round = first_round
        self.clustering = clustering
        self.choose_k = choose_k
        self.k_min_improvement = k_min_improvement
        self.matching = matching
        self.square_root = square_root
        self.stop_when_stable = stop_when_stable
        self.stability_fraction = stability_fraction
        self.memory = memory
        self.absurd_loss = absurd_loss
        self.loss_scale = 0.0
        self.histories = Histories(stability_rounds)
        self.reassign_unstable = reassign_unstable
        self.known: dict[str, FloatArray] = {}
        self.clustered: set[str] = set()
        self.frozen: FrozenClusters | None = None
        self.settled: set[str] = set()
        self._phase = "clustering"

    @property
    def phase(self) -> str:
        """The round in which stability is declared still clusters; the next one does not."""
        return self._phase

    def details(self) -> dict[str, Detail]:
        """Return `stable_from`, the next round, in the round that froze the clustering; it may be the run's last."""
        froze = self.frozen is not None and self._phase != "stable"
        return {STABLE_FROM: self.context.server_round + 1} if froze else {}

    def plan(self, context: RoundContext) -> Plan:
        """Assign every participant a model (l. 4 to 17), then train it (l. 18 to 22)."""
        if self.k != "auto" and self.k > context.models.count:
            raise ValueError(
                f"k={self.k} clusters need as many models, but the initial arrays hold {context.models.count}; "
                "pack K models with florets.task.wire.bank.pack"
            )
        if self.frozen is not None:
            self._phase = "stable"
            ready = self._assign_newcomers(self.frozen, context)
        elif context.server_round == 1 and self.first_round == "random":
            ready = draw_models(context.participants, context.models.count, context.random(Purpose.FIRST_ROUND))
            self.histories.add(ready)
        else:
            # A client whose loss vector was lost sits this round out: nobody has matched it to a model.
            ready = self._assign_by_losses(context)
        self.assignment.update(ready)
        return context.train_assigned(ready)

    def _assign_by_losses(self, context: RoundContext) -> dict[str, int]:
        """Alg. 1, l. 5 to 13, and the paper's check for stability."""
        with context.meter.part("losses"):
            replies = context.ask_losses(context.participants, context.models, self.histories, self.histories.length)
        replies = context.refuse(
            replies, self._with_absurd_losses(replies), "its losses are out of all proportion to the others'"
        )
        context.require(replies, "loss vector")
        with context.meter.part("cluster"):
            fresh = {key: self._embed(reply.losses) for key, reply in replies.ok}
            self.known = {**self.known, **fresh} if self.memory else fresh
            keys = sorted(self.known)
            vectors = np.stack([self.known[key] for key in keys])
            clusters = self._cluster(vectors, context)
            model_of_cluster = self._match(vectors, clusters, keys, context.models.count)
            found = {key: int(model_of_cluster[c]) for key, c in zip(keys, clusters, strict=True)}
        # Deviation: a declaration counts only if this round's clustering keeps the client where it was. The client
        # declares before that clustering is known, and it is this clustering that would be frozen.
        stable = {key for key, reply in replies.ok if reply.stable and found[key] == self.assignment.get(key)}
        ready = {key: found[key] for key in fresh}
        self.assignment.update(found)
        self.clustered |= found.keys()
        self.histories.add(ready)
        if self.stop_when_stable and self._is_stable(len(stable), context, model_of_cluster):
            self.frozen = FrozenClusters.of(context.models, vectors, clusters, model_of_cluster)
            absent = self.clustered - ready.keys()
            length = self.histories.length
            self.settled = stable | {key for key in absent if is_stable(self.histories.get(key, ()), length)}
        return ready

    def _with_absurd_losses(self, replies: Replies[Losses]) -> set[str]:
        if self.absurd_loss is None or not replies.ok:
            return set()
        losses = np.stack([reply.losses for _, reply in replies.ok])
        self.loss_scale = max(self.loss_scale, loss_scale(losses))
        mask = absurd_losses(losses, self.loss_scale, self.absurd_loss)
        return {key for (key, _), absurd in zip(replies.ok, mask, strict=True) if absurd}

    def _is_stable(self, declared: int, context: RoundContext, model_of_cluster: IntArray) -> bool:
        # A model without a centroid could never be given to a newcomer, nor any of its clients be placed again.
        in_use = {self.assignment[key] for key in self.clustered}
        covered = in_use <= set(model_of_cluster.tolist())
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return covered and declared >= self.stability_fraction * len(context.participants) - 1e-9

    def _embed(self, losses: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(losses, 0.0)) if self.square_root else losses

    def _cluster(self, vectors: FloatArray, context: RoundContext) -> IntArray:
        k = self.k
        if k == "auto":
            rng = context.random(Purpose.CHOOSE_K)
            k = choose_k(vectors, context.models.count, self.choose_k, self.k_min_improvement, rng)
        return cluster(vectors, k, self.clustering, context.random(Purpose.CLUSTERING))

    def _match(self, vectors: FloatArray, clusters: IntArray, keys: Sequence[str], num_models: int) -> IntArray:
        if self.matching == "min_cost":
            return match_min_cost(vectors, clusters)
        if self.matching == "overlap":
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
                self.assignment[key] = frozen.nearest_model(self._embed(reply.losses))
                self.clustered.add(key)
                self.settled.add(key)
        return {
            client.key: self.assignment[client.key] for client in context.participants if not self._is_open(client)
        }

    def _is_open(self, client: Client) -> bool:
        # A model drawn at random in round 1 says nothing of where the client belongs.
        return client.key not in (self.settled if self.reassign_unstable else self.clustered)
