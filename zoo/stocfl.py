"""StoCFL: clusters merge as their clients are sampled, and train models that are pulled towards a global one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from florets import Plan, Round, Settings, State, Steps, Strategy, setting
from florets.strategies.base.models import Models, Updates
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.settings import MODELS_OF_GROUPS
from florets.strategies.shared.estimates import ask_estimates, usual_size
from florets.strategies.shared.messages import TRAIN_BILEVEL, BilevelUpdate
from florets.task.wire import codec, kinds
from florets.zoo.shared.agglomerative import joined
from florets.zoo.shared.directions import cosines

ANCHOR_EPOCHS = 20
"""Passes over a client's data for its direction, once for each client."""


@dataclass(frozen=True)
class StoCFLSettings(Settings):
    """Similar clusters merge as their clients are sampled; each trains a model pulled towards a global one."""

    tau: float = setting(
        0.65, "least cosine at which two clusters merge; -1 merges all, above 1 none", least=-1, most=2
    )
    mu: float = setting(0.05, "factor of the term mu/2 |theta - global|^2 in the clusters' training", least=0)

    one_model: ClassVar[bool] = True
    """The clustering determines the number of models."""
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows = MODELS_OF_GROUPS


@dataclass
class StoCFLState(State):
    """What is remembered of the clusters; `assignment` numbers them, and model k is cluster k's."""

    phase: str = "clustering"
    # The model from which every client finds its direction, and the global model.
    anchor: Models | None = None
    shared: Models | None = None
    # Sum of the directions of each cluster's clients, (K, R'), over the trainable parameters.
    directions: FloatArray | None = None


class StoCFL(Strategy[StoCFLSettings, StoCFLState]):
    """Cluster the clients seen so far, at any participation and number of clusters; merges are final.

    A client that takes part for the first time trains the anchor, and what that changed is its direction. It begins
    as a cluster of its own. In every round the clusters of the participants merge as long as the mean directions of
    two have a cosine of at least tau; then each participant trains its cluster's model with a proximal term towards
    the global model, along with the global model.

    Source: Zeng et al. 2023 (StoCFL): stochastic client clustering, and bi-level training. mu, tau and the 20 epochs
    are those of the published code's example on CIFAR-10. Of two clusters that merge the one with more clients hands
    down its model, and a new cluster starts from the global model, as in that code. Deviation: a cluster's direction
    is the mean over all its clients, not only this round's participants; averages are weighted by examples, so that
    tau = -1 with mu = 0 is FedAvg where all take part; merged clusters' cosines are taken anew (`merge_similar`).
    """

    Settings = StoCFLSettings
    State = StoCFLState

    def round(self, r: Round) -> Steps:
        """Meet new participants, merge clusters, and let everybody train the cluster's and the global model."""
        state, layout = self.state, r.models.layout
        if state.anchor is None or state.shared is None:
            state.anchor = state.shared = r.models.replaced(r.models.bank[:1])
        found = self._directions(r.newcomers(self.assignment), r, state.anchor)
        models = r.models = self._merge(found, r, state.shared)
        shared = {kinds.GLOBAL: state.shared.one(0)}
        settings = {**r.averaging.settings, kinds.GLOBAL_MU: self.settings.mu}
        requests = [
            r.request_custom(TRAIN_BILEVEL, client, models.one(self.assignment[client.key]), settings, shared)
            for client in r.participants
            if client.key in self.assignment
        ]
        updates = yield Plan(
            requests,
            lambda key, content: codec.read(BilevelUpdate, content, layout=layout, model=self.assignment[key]),
        )
        # The global model is averaged over all participants.
        vectors = np.stack([cast(BilevelUpdate, update).shared for _, update in updates])
        rows = Updates(updates)
        averaged = r.averaging.next_bank(state.shared, vectors, rows.models * 0, rows.examples, rows.keys)
        state.shared = state.shared.replaced(averaged)
        return r.average(updates)

    def _directions(self, clients: Sequence[Client], r: Round, anchor: Models) -> dict[str, FloatArray]:
        """Return the direction of each client that sent one: the anchor minus what the client made of it."""
        if not clients:
            return {}
        with r.meter.part("describe"):
            known = self._usual_size(anchor)
            replies = ask_estimates(clients, r, anchor, ANCHOR_EPOCHS, known=known)
        trained = anchor.layout.trained
        found = {key: anchor.bank[0, trained] - update.vector[trained] for key, update in replies.ok}
        r.note_vectors("updates", list(found), list(found.values()))
        return found

    def _usual_size(self, anchor: Models) -> float:
        """Return the largest value in what the median cluster's clients made of the anchor, on average."""
        directions = self.state.directions
        if directions is None:
            return 0.0
        sizes = np.bincount(list(self.assignment.values()), minlength=len(directions))
        start = anchor.bank[0, anchor.layout.trained]
        return usual_size(start - total / size for total, size in zip(directions, sizes, strict=True))

    def _merge(self, found: dict[str, FloatArray], r: Round, shared: Models) -> Models:
        """Add the new clients' clusters, merge those of the round, and return the models of what is left."""
        state = self.state
        old = 0 if state.directions is None else len(state.directions)
        rows = [*([] if state.directions is None else state.directions), *found.values()]
        if not rows:
            return r.models
        sums = np.stack(rows)
        self.assignment.update({key: old + place for place, key in enumerate(found)})
        here = {self.assignment[c.key] for c in r.participants if c.key in self.assignment}
        with r.meter.part("cluster"):
            looked_at = np.array(sorted(here), dtype=np.int64)
            merged = merge_similar(sums[looked_at], self.settings.tau)
            sizes = np.bincount(list(self.assignment.values()), minlength=len(sums))
            clusters, heirs = joined(looked_at, merged, sizes, old)
        state.directions = np.zeros((len(heirs), sums.shape[1]))
        np.add.at(state.directions, clusters, sums)
        self.assignment.update({key: int(clusters[cluster]) for key, cluster in self.assignment.items()})
        if len(heirs) == old and not found:
            return r.models
        # Model `old` stands for the global one, which clusters without a model start from.
        before = r.models.bank[:old]
        return r.models.replaced(np.concatenate([before, shared.bank])[np.minimum(heirs, old)])


def merge_similar(sums: FloatArray, least: float) -> IntArray:
    """Merge the two groups of the largest cosine again and again, as long as it is at least `least`.

    `sums` (C, R) are of the directions of each group's clients; the merged groups (C,) are numbered from 0 in order
    of first appearance. A direction of length 0 has a cosine of 0 with every other one; among equal cosines the first
    pair is merged.

    Source: Zeng et al. 2023 (StoCFL), the merging step of stochastic client clustering. Deviation: after each merge
    the cosines of the union are taken anew; the published code goes once through those of before, so that two groups
    can be joined by a third.
    """
    directions = sums.astype(np.float64)
    groups = np.arange(len(directions))
    if len(groups) < 2:
        return groups
    alive = list(range(len(directions)))
    similarity = cosines(directions)
    np.fill_diagonal(similarity, -np.inf)
    while len(alive) > 1:
        part = similarity[np.ix_(alive, alive)]
        row, column = sorted(divmod(int(part.argmax()), len(alive)))
        if part[row, column] < least:
            break
        kept, gone = alive[row], alive[column]
        directions[kept] += directions[gone]
        groups[groups == gone] = kept
        alive.remove(gone)
        similarity[kept] = similarity[:, kept] = cosines(directions[[kept]], directions)[0]
        similarity[kept, kept] = -np.inf
    return canonical(groups)
