"""CLoVE: cluster the clients by their loss vectors, match clusters to models, train one model per client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from florets.strategies.base.groups import Frozen, Groups
from florets.strategies.base.report import STABLE_FROM, State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import choose_k, cluster, match_min_cost
from florets.strategies.layers.losses import ByLosses
from florets.task.keys import setting
from florets.task.randomness import Purpose
from florets.task.wire.leaving import LOSS_VECTORS, MODELS


@dataclass(frozen=True)
class CLoVESettings(ByLosses):
    """The server clusters the clients' loss vectors and matches clusters to models."""

    clustering: Literal["kmeans", "agglomerative"] = setting("kmeans", "how loss vectors are clustered")
    square_root: bool = setting(False, "cluster the square roots of the losses")
    matching: Literal["min_cost", "none"] = setting("min_cost", "how clusters are matched to models")
    stability_rounds: int = setting(3, "a client is stable when its last s assignments are equal", least=1)
    stop_when_stable: bool = setting(True, "freeze the clustering once it is stable")

    asks: ClassVar[frozenset[str]] = frozenset({"losses"})
    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update"),
        "loss_data": ("train", "held_out"),
        "personal": ("none", "intercept", "slopes"),
        "choose_k": ("silhouette", "folds"),
    }

    @property
    def freezes(self) -> bool:  # type: ignore[override]  # it depends on a key
        """Whether groups are frozen once they are stable."""
        return self.stop_when_stable

    @property
    def grouping_rounds(self) -> int:  # type: ignore[override]  # as above
        """Rounds until groups may be frozen."""
        return self.stability_rounds


@dataclass
class CLoVEState(State):
    """What CLoVE remembers: clients' last assignments, the rounds in which they did not answer, and its clusters."""

    phase: str = "clustering"
    histories: dict[str, tuple[int, ...]] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)
    clustered: set[str] = field(default_factory=set)
    frozen: Frozen | None = None


class CLoVE(Strategy[CLoVESettings, CLoVEState]):
    """Clustering of loss vector embeddings: clients with similar losses on all models belong together.

    Source: CLoVE, Alg. 1 and 2, section 3; the released code for the random first round. Deviation:
    `first_round=random` gives round 1's clients random models, as in the paper's experiments; Alg. 1 begins with
    losses (`evaluate`). On the quickstart's rotations ARI is 1.00 ± 0.00 with random and 0.93 ± 0.16 with evaluate.
    Deviation: the server keeps the clients' histories and decides who is stable, as in the released code, so that a
    client that restarts loses nothing; in the paper each client keeps its own and declares itself stable.
    """

    leaving = (MODELS, LOSS_VECTORS)
    Settings = CLoVESettings
    State = CLoVEState

    def round(self, r: Round) -> Steps:
        """Run one round of Alg. 1."""
        if self.state.frozen is not None:  # l. 14 to 17: newcomers join the nearest centroid
            self.state.phase = "stable"
            self._place(r.placed(self.state.frozen, self.state.clustered))
            updates = yield r.train(r.members(self.assignment, self.state.clustered))
            return r.average(updates)
        losses = r.losses()  # l. 5 to 8
        rows = np.sqrt(np.maximum(losses.rows, 0.0)) if self.settings.square_root else losses.rows
        k, rng, name = self._number(rows, r), r.random(Purpose.CLUSTERING), type(self).__name__  # l. 10
        hook = f"{name}.cluster_losses"
        groups = r.group(losses.keys, rows, k, lambda some: self.cluster_losses(some, k, rng), hook)  # l. 11
        groups = groups.matched(self._matched, r.models.count, f"{name}.match")  # l. 12 and 13
        self._place(groups.assignment)
        updates = yield r.train(r.members(groups.assignment))  # l. 18 to 22
        self._remember(r.members(groups.assignment))
        self._note_silent(r)
        if self._is_stable(groups, r) if groups.is_last is None else groups.is_last:
            self.state.frozen = Frozen.by_losses(groups, losses.models, self.settings.square_root)
            self.state.details[STABLE_FROM] = r.server_round + 1
        return r.average(updates)

    def cluster_losses(self, losses: FloatArray, k: int, rng: np.random.Generator) -> IntArray:
        """Return the cluster of each loss vector (M, K), from 0 without a gap, at most `k`; a subclass may differ."""
        return cluster(losses, k, self.settings.clustering, rng)

    def match(self, losses: FloatArray, clusters: IntArray, previous: IntArray) -> IntArray:
        """Return the model of each cluster (C,), all different; a subclass may differ.

        `losses` are no roots (Lemma A.16; the released code's are); `previous` (M,) is -1 for clients without one.
        """
        if self.settings.matching == "min_cost":
            return match_min_cost(losses, clusters)
        return np.arange(int(clusters.max()) + 1)

    def _matched(self, groups: Groups) -> IntArray:
        core, count = groups.core, self.context.models.count
        losses = np.square(core.rows) if self.settings.square_root else core.rows
        previous = np.array([self.assignment.get(key, -1) for key in core.keys])
        return self.match(losses[:, :count], core.labels, previous)

    def _number(self, losses: FloatArray, r: Round) -> int:
        """Return K: given, as in the paper's experiments, or by Alg. 2; after folds there are as many models."""
        if self.k != "auto" or self.choose_k == "folds":
            return self.k if isinstance(self.k, int) else r.models.count
        return choose_k(losses, r.models.count, r.random(Purpose.CHOOSE_K))

    def _place(self, groups: Mapping[str, int]) -> None:
        self.assignment.update(groups)
        self.state.clustered |= groups.keys()

    def _remember(self, groups: Mapping[str, int]) -> None:
        length, histories = self.settings.stability_rounds, self.state.histories
        histories.update({key: (*histories.get(key, ()), model)[-length:] for key, model in groups.items()})

    def _note_silent(self, r: Round) -> None:
        silent = self.state.silent
        silent.update({client.key: silent.get(client.key, 0) + 1 for client in r.participants})
        silent.update(dict.fromkeys(r.answered, 0))

    def _is_stable(self, groups: Groups, r: Round) -> bool:
        """Whether all participants have had one model in their last `stability_rounds` rounds (section 3).

        Deviation: who has not answered in so many rounds is not waited for. Nothing is frozen while a model in use
        has no centroid: no newcomer could ever be given it.
        """
        state, length = self.state, self.settings.stability_rounds
        stable = {key for key, last in state.histories.items() if len(last) == length and len(set(last)) == 1}
        gone = {key for key, rounds in state.silent.items() if rounds >= length}
        in_use = {self.assignment[key] for key in state.clustered - gone}
        waited = {client.key for client in r.participants} - gone
        all_are = len(stable.intersection(r.answered)) >= len(waited)
        return self.settings.stop_when_stable and all_are and in_use <= set(groups.models.tolist())

    def begins(self, groups: Mapping[str, int], are_found: bool) -> None:
        """Take over the first assignment; a random one says nothing about where a client belongs."""
        self.assignment.update(groups)
        self._remember(groups)
        self.state.clustered |= groups.keys() if are_found else set()

    def frozen_clusters(self) -> Frozen | None:
        """Return the frozen clusters."""
        return self.state.frozen
