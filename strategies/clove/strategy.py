"""CLoVE: cluster the clients by their loss vectors, match clusters to models, train one model per client."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.placement import Frozen
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.choose_k import choose_k
from florets.strategies.core.cluster import (
    centroids,
    check_clusters,
    check_match,
    cluster,
    match_in_order,
    match_min_cost,
    match_overlap,
)
from florets.strategies.core.noised_groups import PARTS
from florets.strategies.core.set_aside import placed
from florets.strategies.settings import PrivacyKind, Releases, RunKeys
from florets.strategies.shared.bounded_rows import bounded_moves, bounded_rows
from florets.strategies.shared.loss_vectors import Embedded, LossVectors, LossVectorSettings, LossVectorState
from florets.strategies.shared.messages import TRAIN_FOLDS
from florets.strategies.shared.watch import Watch
from florets.task.keys import setting
from florets.task.randomness import Purpose
from florets.task.wire.replies import Update


@dataclass(eq=False)
class Histories:
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

    def gone(self, rounds: int) -> set[str]:
        """Return the clients that have returned nothing valid for so many rounds running."""
        return {key for key, silent in self.silent.items() if silent >= rounds}


@dataclass(frozen=True)
class CLoVESettings(LossVectorSettings):
    """The server clusters the clients' loss vectors and matches clusters to models."""

    clustering: Literal["kmeans", "agglomerative", "finch"] = setting("kmeans", "how loss vectors are clustered")
    matching: Literal["min_cost", "overlap", "none"] = setting("min_cost", "how clusters are matched to models")
    stability_rounds: int = setting(3, "a client is stable when its last s assignments are equal", least=1)
    stability_fraction: float = setting(
        1.0, "fraction of a round's participants that must be stable", above=0, most=1, note="1.0 means all"
    )
    stop_when_stable: bool = setting(True, "freeze the clustering once it is stable")

    def conflicts(self) -> list[str]:
        """Refuse a watch without a freeze."""
        problems = super().conflicts()
        if self.watch is not None and not self.stop_when_stable:
            problems.append(
                f"strategy.watch={self.watch:g}: has an effect only with strategy.stop_when_stable=true; add that, "
                "or leave it out."
            )
        return problems

    def releases(self, kind: PrivacyKind) -> Releases | None:
        """Name losses while groups are found: noised sums over clients, or each client's own."""
        if kind == "central":
            return Releases(compared=self.stability_rounds, start=PARTS, hidden=True, handlers=(TRAIN_FOLDS,))
        return Releases(before=self.stability_rounds)

    def uncovered(self, run: RunKeys) -> list[str]:
        """Refuse what compares losses without noise."""
        problems, privacy = super().uncovered(run), f"privacy.kind={run.privacy.kind}"
        for name, only in (
            ("clustering", "kmeans"),
            ("matching", "min_cost"),
            ("watch", None),
            ("memory", False),
            ("square_root", False),
            ("stop_when_stable", True),
        ):
            value = getattr(self, name)
            if value != only:
                problems.append(f"strategy.{name}={str(value).lower()}: not covered by {privacy}; leave it out.")
        return problems

    def open_groups(self) -> str | None:
        """Return why clusters are never frozen for good, where they are not."""
        if self.watch is not None:
            return f"watches single losses and moves clients with strategy.watch={self.watch:g}"
        if self.restarts > 1:
            return f"begins anew with strategy.restarts={self.restarts}"
        return None if self.stop_when_stable else "clusters in every round with strategy.stop_when_stable=false"

    finds_k: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models", "gradients"),
        "first_round": ("random", "evaluate", "update"),
        "loss_data": ("train", "held_out"),
        "personal": ("none", "intercept", "slopes"),
        "choose_k": ("silhouette", "folds"),
    }


@dataclass
class CLoVEState(LossVectorState):
    """What CLoVE remembers.

    Attributes
    ----------
    histories
        Last assignments of each client.
    clustered
        Clients that a clustering has placed.
    """

    phase: str = "clustering"
    histories: Histories = field(default_factory=Histories)
    clustered: set[str] = field(default_factory=set)

    def freeze_if_stable(
        self,
        clusters: Frozen,
        assignment: Mapping[str, int],
        stable: set[str],
        participants: set[str],
        settings: CLoVESettings,
    ) -> None:
        """Freeze a round's clusters where enough of its participants declare that they are stable.

        Source: CLoVE, section 3, which the released code replaces by a look at the server's own records.
        Deviation: clients silent for `stability_rounds` rounds are not waited for: one that has left would keep
        clusters open for good. Nothing is frozen while a model in use has no centroid, because it could never be
        given to a newcomer, nor any of its clients be placed again.
        """
        gone = self.histories.gone(settings.stability_rounds)
        in_use = {assignment[key] for key in self.clustered - gone}
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        needed = settings.stability_fraction * len(participants - gone) - 1e-9
        if in_use <= set(clusters.model_of_cluster.tolist()) and len(stable) >= needed:
            self.frozen = clusters

    def open_again(self) -> None:
        """Cluster anew from this round on, until clients are stable again."""
        self.frozen, self.phase, self.watch = None, "clustering", Watch(details=self.watch.details)
        self.histories, self.known = Histories(), {}


class CLoVE(LossVectors[CLoVESettings, CLoVEState]):
    """Clustering of loss vector embeddings, with what `LossVectors` puts around it.

    Source: CLoVE, Alg. 1 and 2, section 3; the released code for the random first round.
    Deviation: `first_round=random` gives round 1's clients random models, as in the paper's experiments; Alg. 1
    begins with losses (`evaluate`). On the quickstart's rotations ARI is 1.00 ± 0.00 with random and 0.93 ± 0.16
    with evaluate, on pairs of labels 1.00 with either (5 seeds).
    Deviation: `outlier_loss=100` rejects a client whose best loss is over 100 times the median client's worst. In
    both federations it rejects nobody: results are the same without it.
    """

    Settings = CLoVESettings
    State = CLoVEState

    _candidate: Frozen | None = None
    """This round's clusters, until the updates show whether they are stable."""

    def plan_round(self, context: Round) -> Plan[Update]:
        """Assign every participant a model (Alg. 1, l. 4 to 17), and let it train that (l. 18 to 22)."""
        state = self.state
        if self.departed_open(context):
            state.open_again()
        if state.frozen is not None:  # l. 14 to 17
            state.phase = "stable"
            self._place_newcomers(state.frozen, context)
            return self.train(
                context, {c.key: self.assignment[c.key] for c in context.participants if not self._is_new(c)}
            )
        found = self.embed(context)  # l. 5 to 8
        with context.meter.part("cluster"):
            clusters, models, means = self._clusters(found, context)
            root = self.settings.square_root
        matched = {key: int(models[cluster]) for key, cluster in zip(found.keys, clusters, strict=True)}
        self.assignment.update(matched)
        state.clustered |= matched.keys()
        plan = self.train(found.sent, {key: matched[key] for key in found.replied}, found.kept)
        self._candidate = Frozen("losses", means, found.sent.models, models, square_root=root, limit=found.limit)
        return plan

    def _clusters(self, found: Embedded, context: Round) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the cluster of each loss vector (M,), the model of each cluster, and its centroid (l. 10 to 13)."""
        if self.privacy is not None and not self.privacy.is_local:
            # Deviation: instead of k-means and matching, by one noised sum of loss vectors.
            clusters, centres = self.privacy.compared(found.keys, found.vectors, context.models.count)
            return clusters, np.arange(len(centres)), centres
        k, name = self._num_clusters(found.vectors, context), type(self).__name__  # l. 10
        vectors, aside = bounded_rows(self.state, context, found.keys, found.vectors, k)
        core, rng = vectors[~aside], context.random(Purpose.CLUSTERING)

        def group(rows: FloatArray) -> IntArray:
            check_clusters(found := self.cluster_losses(rows, k, rng), len(rows), f"{name}.cluster_losses")
            return found

        clusters = placed(vectors, aside, group)  # l. 11
        previous = np.array([self.assignment.get(key, -1) for key in found.keys])
        # Lemma A.16 matches by plain losses; the released code takes the roots in matching, too.
        losses = np.square(core) if self.settings.square_root else core
        models = self.match(losses[:, : context.models.count], clusters[~aside], previous[~aside])  # l. 12 and 13
        check_match(models, clusters, context.models.count, f"{name}.match")
        return clusters, models, centroids(core, clusters[~aside])

    def train(self, context: Round, assignment: Mapping[str, int], kept: Container[str] = ()) -> Plan[Update]:
        """Let each client train its model; until clusters are frozen it declares whether it is stable (section 3)."""
        self._candidate = None
        self.assignment.update(assignment)
        # With noise groups are fixed after a number of rounds: that a client is stable depends on its data.
        length, rounds = self.settings.stability_rounds, 0
        if self.state.frozen is None:
            self.state.histories.add(assignment, length)
            rounds = length if self.settings.stop_when_stable and self.privacy is None else 0
        return context.train_assigned(assignment, histories=self.state.histories.entries, rounds=rounds, kept=kept)

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Average the updates; in a random first round a robust rule bounds how far each model moves."""
        bank = super().average(updates)
        return bank if self.state.clustered else bounded_moves(self.context, bank)

    def after_training(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Freeze this round's clusters where enough clients declare that they are stable (section 3)."""
        state = self.state
        if state.frozen is not None:
            if self.settings.watch is not None:
                state.watch.observe(updates, self.settings.watch)
            return
        participants = {client.key for client in self.context.participants}
        stable = {key for key, update in updates if update.stable}
        state.histories.heard(participants, {key for key, _ in updates})
        if self.privacy is not None:
            first = 1 if self.first_round == "evaluate" else 2
            if (
                self._candidate is not None
                and self.context.server_round >= first + self.settings.stability_rounds - 1
            ):
                state.frozen = self._candidate
        elif self._candidate is not None:
            state.freeze_if_stable(self._candidate, self.assignment, stable, participants, self.settings)

    def cluster_losses(self, losses: FloatArray, k: int, rng: np.random.Generator) -> IntArray:
        """Return the cluster of each loss vector (M,), from 0 without a gap, at most `k`; a subclass may differ.

        `losses` (M, K + probes) are as embedded, in the order of the client keys, and not to be changed; `rng` is for
        every draw.
        """
        return cluster(losses, k, self.settings.clustering, rng)

    def match(self, losses: FloatArray, clusters: IntArray, previous: IntArray) -> IntArray:
        """Return the model of each cluster (C,), all different; a subclass may differ.

        `losses` (M, K) are never square roots, `clusters` (M,) are those of `cluster_losses`, and `previous` (M,) has
        each client's model so far, -1 for none.
        """
        match self.settings.matching:
            case "min_cost":
                return match_min_cost(losses, clusters)
            case "overlap":
                return match_overlap(clusters, previous, losses.shape[1])
            case "none":
                return match_in_order(int(clusters.max()) + 1, losses.shape[1])

    def _num_clusters(self, vectors: FloatArray, context: Round) -> int:
        """Return K, given or as Alg. 2 finds it; with choose_k=folds round 1 made as many models as groups.

        Source: CLoVE, Alg. 1, l. 10. Deviation: K may be given, as in its experiments, or come from folds.
        """
        if self.k != "auto" or self.choose_k == "folds":
            return self.k if isinstance(self.k, int) else context.models.count
        return choose_k(vectors, context.models.count, context.random(Purpose.CHOOSE_K))

    def _place_newcomers(self, frozen: Frozen, context: Round) -> None:
        """Give newcomers the model of the nearest saved centroid, by their losses of the models saved with it.

        Source: CLoVE, Alg. 1, l. 16. Deviation: outliers sit the round out; the released code fails on newcomers.
        """
        if new := [client for client in context.participants if self._is_new(client)]:
            for key, reply in self.ask_losses(new, frozen.models or context.models, context).ok:
                self.assignment[key] = frozen.nearest_model(reply.losses)
                self.state.clustered.add(key)

    def _is_new(self, client: Client) -> bool:
        # A model drawn at random in round 1 says nothing of where the client belongs.
        return client.key not in self.state.clustered

    def grouped(self, groups: Mapping[str, int]) -> None:
        """Take over the groups of a round 1 that starts from updates."""
        self.state.histories.add(groups, self.settings.stability_rounds)
        self.state.clustered |= groups.keys()
