"""CLoVE: cluster the clients by their loss vectors, match clusters to models, train one model per client."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, assert_never

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.placement import FrozenClusters
from florets.strategies.base.report import STABLE_FROM, Client, Detail
from florets.strategies.base.strategy import Strategy
from florets.strategies.clove.outliers import Outliers
from florets.strategies.clove.watch import Watch
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.choose_k import choose_k
from florets.strategies.core.cluster import cluster
from florets.strategies.core.matching import match_in_order, match_min_cost, match_overlap
from florets.strategies.core.outliers import clipped
from florets.strategies.settings import Experiment, idle
from florets.strategies.shared.first_rounds import draw_models, far_models, start_from_updates, starts_from_updates
from florets.strategies.shared.restarts import Restarted, RestartState, begin_round
from florets.task.keys import setting
from florets.task.randomness import Purpose
from florets.task.wire import is_stable
from florets.task.wire.replies import Losses, Update


@dataclass(frozen=True)
class CLoVESettings(Restarted):
    """The server clusters the clients' loss vectors and matches clusters to models."""

    clustering: Literal["kmeans", "agglomerative", "finch"] = setting("kmeans", "how loss vectors are clustered")
    k_min_improvement: float = setting(
        0.0,
        "least relative gain that a larger K must bring; negative: a loss that it may cost (k=auto)",
        above=-1,
        note="0 takes any gain",
    )
    matching: Literal["min_cost", "overlap", "none"] = setting("min_cost", "how clusters are matched to models")
    square_root: bool = setting(False, "take the square root of the losses before clustering and matching")
    stability_rounds: int = setting(3, "a client is stable when its last s assignments are equal", least=1)
    stability_fraction: float = setting(
        1.0, "fraction of a round's participants that must be stable", above=0, most=1, note="1.0 means all"
    )
    stop_when_stable: bool = setting(True, "freeze the clustering once it is stable")
    reassign_unstable: bool = setting(False, "then also place anew the clients that were not stable themselves")
    outlier_loss: float | None = setting(
        100.0,
        "reject clients whose best loss is over this many times the median client's worst, two rounds running; "
        "null: nobody",
        least=1,
        note="null rejects nobody",
    )
    watch: float | None = setting(
        None,
        "after the freeze: robust z-score from which a client's training loss departs from its cluster's, so that it "
        "is asked for a loss vector again; 8 is a good value, null watches nobody",
        above=0,
        note="null watches nobody",
    )
    probes: int = setting(
        0, "random models beside the K that loss vectors are also taken on, and that nobody trains", least=0
    )
    memory: bool = setting(False, "cluster the latest loss vectors of all clients seen, not only this round's")

    @property
    def extra_models(self) -> int:
        """First models that the algorithm needs beside the K that are trained."""
        return self.probes

    def conflicts(self) -> list[str]:
        """Refuse several starts with probes, which belong to the models of one, and a watch without a freeze."""
        problems = super().conflicts()
        if self.restarts > 1 and self.probes > 0:
            problems.append(f"strategy.probes={self.probes}: cannot be used with strategy.restarts; leave one out.")
        if self.watch is not None and not self.stop_when_stable:
            problems.append(
                f"strategy.watch={self.watch:g}: has an effect only with strategy.stop_when_stable=true; add that, "
                "or leave it out."
            )
        return problems

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a rule for K where K is given, and a personal method where clusters are not frozen for good."""
        problems = super().problems(run)
        if run.k != "auto":
            problems += idle(self, ["k_min_improvement"], "k=auto")
        if run.personal == "fedproto" and (self.watch is not None or not self.stop_when_stable):
            key = "watch" if self.watch is not None else "stop_when_stable"
            problems.append(
                f"strategy.{key}: personal=fedproto begins once clusters are frozen, and their models stay as they "
                f"are from then on, so that losses on them say nothing; leave strategy.{key} out."
            )
        return problems

    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update", "farthest"),
        "loss_data": ("train", "held_out"),
        "personal": ("none", "ditto", "fedala", "fedproto", "intercept"),
        "choose_k": ("silhouette", "silhouette_lone", "elbow", "silhouette_repeated", "finch", "folds"),
    }


@dataclass(eq=False)
class Histories(Mapping[str, list[int]]):
    """The last assignments of each client, one for each round in which it was given a model.

    In the paper each client keeps its own. Deviation: the server keeps them and sends each client its own with the
    model to train, so that a client that restarts loses nothing; the declaration of stability stays the client's, and
    comes with its update.

    Attributes
    ----------
    entries
        By client.
    silent
        By client: rounds running in which it took part and returned no valid update.
    """

    entries: dict[str, list[int]] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)

    def __deepcopy__(self, _: object) -> "Histories":
        # A client's list is replaced, never changed: a copy of the state, made before each round, shares them.
        return Histories(dict(self.entries), dict(self.silent))

    def __getitem__(self, key: str) -> list[int]:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, assignment: Mapping[str, int], length: int) -> None:
        """Append this round's assignment of the clients that took part in it; the last `length` are kept."""
        for key, model in assignment.items():
            self.entries[key] = [*self.entries.get(key, []), model][-length:]

    def heard(self, participants: Iterable[str], answered: Container[str]) -> None:
        """Note who returned a valid update in a round."""
        for key in participants:
            if key in answered:
                self.silent.pop(key, None)
            else:
                self.silent[key] = self.silent.get(key, 0) + 1

    def is_gone(self, key: str, rounds: int) -> bool:
        """Return whether a client has returned nothing valid for so many rounds running."""
        return self.silent.get(key, 0) >= rounds


WATCH = "watch"
"""The detail of a round in which clients departed from their clusters, or were asked again."""


@dataclass
class CLoVEState(RestartState):
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
    outliers
        Clients whose losses are far above everybody else's.
    probes
        Random models, never trained, whose losses are embedded beside those of the K; None where there are none.
    watch
        What clients' losses usually are since then, and whose has departed from that.
    """

    phase: str = "clustering"
    histories: Histories = field(default_factory=Histories)
    known: dict[str, FloatArray] = field(default_factory=dict)
    clustered: set[str] = field(default_factory=set)
    frozen: FrozenClusters | None = None
    settled: set[str] = field(default_factory=set)
    outliers: Outliers = field(default_factory=Outliers)
    probes: Models | None = None
    watch: Watch = field(default_factory=Watch)


class CLoVE(Strategy[CLoVESettings, CLoVEState]):
    """Clustering of loss vector embeddings.

    Raises
    ------
    ValueError
        In round 1, if the initial arrays hold fewer models than `k` and `probes` together; the probes are the last.

    Source: CLoVE, Alg. 1 and 2.
    """

    Settings = CLoVESettings
    State = CLoVEState

    _candidate: FrozenClusters | None = None
    """This round's clusters, until the updates show whether they are stable."""

    def check(self, models: Models) -> None:
        """Raise ValueError where there are fewer models than clusters, or than clusters and probes."""
        super().check(models)
        wanted = self.k if isinstance(self.k, int) else 1
        if self.state.probes is None and models.count < wanted + self.settings.probes:
            raise ValueError(
                f"strategy.probes={self.settings.probes}: the initial arrays hold {models.count} models, and "
                f"need {wanted} to train and the probes behind them; pack more, or use fewer probes"
            )

    def details(self) -> dict[str, Detail]:
        """Return `stable_from`, the next round, in the round that froze the clustering, and what starts came to."""
        found = {**(self.state.found if self.context.server_round == 1 else {}), **self.state.told}
        if self.state.watch.told:
            found[WATCH] = dict(self.state.watch.told)
        froze = self.state.frozen is not None and self.state.phase != "stable"
        return {**found, STABLE_FROM: self.context.server_round + 1} if froze else found

    def frozen_clusters(self) -> FrozenClusters | None:
        """Return the clusters at the moment of stability."""
        return self.state.frozen

    def plan(self, context: Round) -> Plan[Update]:
        """Assign every participant a model (l. 4 to 17), then train it (l. 18 to 22)."""
        self._candidate = None
        # The models that are sent with this round's messages: the K, with the probes where losses are asked for.
        context = sent = self._without_probes(context)
        if starts_from_updates(self, context):
            return start_from_updates(self, context, self._settle)
        context = sent = begin_round(self, context)
        if self.state.is_first and self.first_round == "farthest":
            context = sent = replace(context, models=far_models(context))
        self.state.watch.told = {}
        if self.state.frozen is not None and self.settings.watch is not None and self._watched(context):
            self._open_again()
        histories, length = self.state.histories, self.settings.stability_rounds
        kept: set[str] = set()
        if self.state.frozen is not None:
            self.state.phase = "stable"
            ready = self._assign_newcomers(self.state.frozen, context)
        elif self.state.is_first and self.first_round == "random":
            ready = draw_models(context.participants, context.models.count, context.random(Purpose.FIRST_ROUND))
            histories.add(ready, length)
        else:
            # A client whose loss vector was lost sits this round out: nobody has matched it to a model.
            sent = self._with_probes(context)
            ready, kept = self._assign_by_losses(sent)
        self.assignment.update(ready)
        asked = length if self.settings.stop_when_stable and self.state.frozen is None else 0
        return replace(sent.train_and_declare(ready, histories, asked, kept), models=context.models)

    def _without_probes(self, context: Round) -> Round:
        """Return the round with the K models alone; the first round's last models become the probes."""
        count = self.settings.probes
        if not count or self.state.probes is not None:
            return context
        models = context.models
        self.state.probes = models.replaced(models.bank[-count:])
        return replace(context, models=models.replaced(models.bank[:-count]))

    def _with_probes(self, context: Round) -> Round:
        """Return the round with the probes behind the K models."""
        if self.state.probes is None:
            return context
        bank = np.concatenate([context.models.bank, self.state.probes.bank])
        return replace(context, models=context.models.replaced(bank))

    def _settle(self, groups: Mapping[str, int]) -> None:
        """Take over the groups that round 1 found from updates."""
        self.state.histories.add(groups, self.settings.stability_rounds)
        self.state.clustered |= groups.keys()

    def after_training(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Freeze this round's clusters where enough clients declare that they are stable (section 3)."""
        if self.state.frozen is not None:
            if self.settings.watch is not None:
                losses = {key: (update.model, update.train_loss) for key, update in updates}
                self.state.watch.observe(losses, self.settings.watch)
            return
        participants, length = [client.key for client in self.context.participants], self.settings.stability_rounds
        stable = {key for key, update in updates if update.stable}
        histories = self.state.histories
        histories.heard(participants, {key for key, _ in updates})
        if self._candidate is not None and self._is_stable(len(stable), participants, self._candidate):
            self.state.frozen = self._candidate
            absent = self.state.clustered.difference(participants)
            self.state.settled = stable | {key for key in absent if is_stable(histories.get(key, ()), length)}

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Average without clients that depart in this round, or that no model fits, unless all of a cluster do."""
        away = self.state.watch.away
        stayed = {update.model for key, update in updates if key not in away}
        return super().average([(key, u) for key, u in updates if key not in away or u.model not in stayed])

    def _watched(self, context: Round) -> bool:
        """Ask those whose loss has departed for a loss vector and move them; say whether clusters are open again."""
        watch = self.state.watch
        watch.fresh = set()
        due = [client for client in context.participants if client.key in watch.departed and self._is_due(client)]
        # One model alone leaves nowhere to move.
        if not due or context.models.count == 1:
            return False
        with context.meter.part("losses"):
            replies = self._without_outliers(context.ask_losses(due, context.models, all_samples=True), context)
        moved = []
        for key, reply in replies.ok:
            departure = watch.departed[key]
            departure.answered(reply.losses, self.assignment[key])
            best = int(np.argmin(reply.losses))
            # Whom no model fits stays, and is counted.
            if best != self.assignment[key] and not departure.unfit:
                self.assignment[key] = best
                moved.append(key)
        opened = watch.opens()
        for key in moved:
            watch.forget(key)
        watch.told = {"asked": [client.key for client in due], "moved": moved, "opened": opened}
        return opened

    def _is_due(self, client: Client) -> bool:
        return self.state.watch.departed[client.key].due <= 0

    def _open_again(self) -> None:
        """Cluster anew from this round on, until clients are stable again."""
        told = self.state.watch.told
        self.state.frozen, self.state.phase, self.state.watch = None, "clustering", Watch(told=told)
        self.state.histories, self.state.settled, self.state.known = Histories(), set(), {}

    def _assign_by_losses(self, context: Round) -> tuple[dict[str, int], set[str]]:
        """Alg. 1, l. 5 to 13; return the clients' models, and those whose process has kept the models.

        `context` has the models that loss vectors are taken on; the probes among them tell clients apart, and no
        cluster is matched to one.
        """
        state, trained = self.state, context.models.count - self.settings.probes
        with context.meter.part("losses"):
            replies = context.ask_losses(context.participants, context.models)
        limit = state.outliers.measure([reply.losses for _, reply in replies.ok])
        replies = self._without_outliers(replies, context)
        context.require(replies, "loss vector")
        with context.meter.part("cluster"):
            fresh = {key: self._embed(reply.losses) for key, reply in replies.ok}
            state.known = {**state.known, **fresh} if self.settings.memory else fresh
            keys = sorted(state.known)
            limit = float(self._embed(np.array(state.outliers.limit(keys, limit))))
            vectors = clipped(np.stack([state.known[key] for key in keys]), limit)
            context.note_vectors("losses", keys, vectors)
            clusters = self._cluster(vectors, trained, context)
            model_of_cluster = self._match(vectors[:, :trained], clusters, keys)
            found = {key: int(model_of_cluster[c]) for key, c in zip(keys, clusters, strict=True)}
            root = self.settings.square_root
            self._candidate = FrozenClusters.of(context.models, vectors, clusters, model_of_cluster, root, limit)
        ready = {key: found[key] for key in fresh}
        self.assignment.update(found)
        state.clustered |= found.keys()
        state.histories.add(ready, self.settings.stability_rounds)
        return ready, {key for key, reply in replies.ok if reply.kept}

    def _without_outliers(self, replies: Replies[Losses], context: Round) -> Replies[Losses]:
        reports = [(key, reply.losses) for key, reply in replies.ok]
        for reason, keys in self.state.outliers.reject(reports, self.settings.outlier_loss).items():
            replies = context.reject(replies, keys, reason)
        return replies

    def _is_stable(self, declared: int, participants: Sequence[str], candidate: FrozenClusters) -> bool:
        # A model without a centroid could never be given to a newcomer, nor any of its clients be placed again.
        gone = {key for key in self.state.histories.silent if self._is_gone(key)}
        in_use = {self.assignment[key] for key in self.state.clustered - gone}
        covered = in_use <= set(candidate.model_of_cluster.tolist())
        counted = len(set(participants) - gone)
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return covered and declared >= self.settings.stability_fraction * counted - 1e-9

    def _is_gone(self, key: str) -> bool:
        return self.state.histories.is_gone(key, self.settings.stability_rounds)

    def _embed(self, losses: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(losses, 0.0)) if self.settings.square_root else losses

    def _cluster(self, vectors: FloatArray, most: int, context: Round) -> IntArray:
        own = self.settings
        k = most if self.k is None else self.k
        if k == "auto" and self.choose_k == "folds":
            # Found in round 1: there are as many models.
            k = most
        if k == "auto":
            rng = context.random(Purpose.CHOOSE_K)
            k = choose_k(vectors, most, self.choose_k or "silhouette", own.k_min_improvement, rng)
        clusters = self.cluster_losses(vectors, k, context.random(Purpose.CLUSTERING))
        if clusters.shape != (len(vectors),) or set(clusters.tolist()) != set(range(int(clusters.max()) + 1)):
            raise ValueError(
                f"{type(self).__name__}.cluster_losses returned {clusters!r}: give each of {len(vectors)} clients a "
                "cluster, numbered from 0 without a gap"
            )
        return clusters

    def cluster_losses(self, losses: FloatArray, k: int, rng: np.random.Generator) -> IntArray:
        """Return the cluster of each client, (M,), numbered from 0 without a gap; at most K clusters.

        By default as `strategy.clustering` says; a subclass may cluster otherwise.

        Parameters
        ----------
        losses : (M, K + probes)
            Loss vectors as they are embedded, in the order of the client keys. Not to be changed.
        k
            Number of clusters to find.
        rng
            For every draw.
        """
        return cluster(losses, k, self.settings.clustering, rng)

    def _match(self, vectors: FloatArray, clusters: IntArray, keys: Sequence[str]) -> IntArray:
        previous = np.array([self.assignment.get(key, -1) for key in keys])
        found, count = self.match(vectors, clusters, previous), int(clusters.max()) + 1
        if found.shape != (count,) or len(set(found.tolist()) & set(range(vectors.shape[1]))) < count:
            raise ValueError(
                f"{type(self).__name__}.match returned {found!r}: give each of {count} clusters a model of its own, "
                f"from 0 to {vectors.shape[1] - 1}"
            )
        return found

    def match(self, losses: FloatArray, clusters: IntArray, previous: IntArray) -> IntArray:
        """Return the model of each cluster, (C,), all different.

        By default as `strategy.matching` says; a subclass may match otherwise.

        Parameters
        ----------
        losses : (M, K)
            Loss vectors as they are embedded, in the order of the client keys. Not to be changed.
        clusters : (M,)
            What `cluster_losses` returned.
        previous : (M,)
            Model of each client so far, -1 for none.
        """
        num_models = losses.shape[1]
        if self.settings.matching == "min_cost":
            return match_min_cost(losses, clusters)
        if self.settings.matching == "overlap":
            return match_overlap(clusters, previous, num_models)
        if self.settings.matching == "none":
            return match_in_order(int(clusters.max()) + 1, num_models)
        assert_never(self.settings.matching)

    def _assign_newcomers(self, frozen: FrozenClusters, context: Round) -> dict[str, int]:
        """Alg. 1, l. 16: nearest saved centroid, with loss vectors taken on the models saved at stability."""
        new = [client for client in context.participants if self._is_open(client)]
        if new:
            with context.meter.part("losses"):
                replies = context.ask_losses(new, frozen.models, all_samples=True)
            for key, reply in self._without_outliers(replies, context).ok:
                self.assignment[key] = frozen.nearest_model(reply.losses)
                self.state.clustered.add(key)
                self.state.settled.add(key)
        return {
            client.key: self.assignment[client.key] for client in context.participants if not self._is_open(client)
        }

    def _is_open(self, client: Client) -> bool:
        # A model drawn at random in round 1 says nothing of where the client belongs.
        return client.key not in (self.state.settled if self.settings.reassign_unstable else self.state.clustered)
