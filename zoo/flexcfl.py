"""FlexCFL: group clients once, by the directions of their first updates, then FedAvg in each group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import svd

from florets import Round, State, Steps, Strategy, Update
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray
from florets.strategies.core.cluster import centroids, cluster
from florets.strategies.settings import SharedLayers
from florets.strategies.shared.estimates import ask_estimates
from florets.task.device import one_thread
from florets.task.randomness import Purpose
from florets.task.wire.leaving import MODELS
from florets.zoo.shared.directions import cosines

FOUNDERS = 20
"""Clients that form the groups, for each of the k groups."""
COLD_START_STEPS = 50
"""Local steps of a client's cold start, from the one initial model."""


@dataclass(frozen=True)
class FlexCFLSettings(SharedLayers):
    """The server groups clients once, by the directions of their first updates; then FedAvg in each group."""

    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    # Updates are comparable only where they start from one model.
    usual_initial = "same"


@dataclass
class FlexCFLState(State):
    """What FlexCFL remembers; both are None before round 1."""

    phase: str = "clustering"
    # The one initial model, from which every client's cold start begins.
    reference: Models | None = None
    # Mean update of each group's clients at the cold start, (C, D), of trainable parameters.
    directions: FloatArray | None = None


class FlexCFL(Strategy[FlexCFLSettings, FlexCFLState]):
    """Static groups from the directions of the clients' first updates.

    In round 1 some clients take a few local steps from the one initial model, their cold start. What these changed is
    grouped by k-means of the decomposed cosines; a group's model is the mean of its clients' models, and its
    direction that of their updates. Every other client is cold-started when it first takes part, and joins the group
    whose direction is nearest to its own. Groups stay.

    With gradient averaging the cold start takes local steps all the same.

    Source: Duan et al. 2022 (FlexCFL, arXiv 2108.09749): cold start, and EDC; its other measure, MADC, is left out.
    Deviation: there is no migration, for which clients would tell the server how many samples of each class they
    have, and which changes nothing where labels do not shift; nor inter-group aggregation, whose rate is 0 by default
    in the released code. That is FedGroup (arXiv 2010.06870).
    Deviation: a client is tested with its group's present model, not with that of the round in which it last took
    part, as in the released code.
    """

    leaving = (MODELS,)
    Settings = FlexCFLSettings
    State = FlexCFLState

    def round(self, r: Round) -> Steps:
        """Form the groups, or place who is new in them; then every client trains its group's model."""
        state, known = self.state, len(self.assignment)
        state.phase = "clustering" if state.directions is None else "stable"
        if state.directions is None:
            number = min(FOUNDERS * r.models.count, len(r.online))
            drawn = r.random(Purpose.FIRST_ROUND).choice(len(r.online), size=number, replace=False)
            r.models = self._form_groups([r.online[index] for index in np.sort(drawn)], r)
        if new := r.newcomers(self.assignment):
            self._place(new, r)
        started = len(self.assignment) - known
        state.details = {"cold_started": float(started)} if started else {}
        updates = yield r.train(self.assignment)
        return r.average(updates)

    def _form_groups(self, founders: Sequence[Client], r: Round) -> Models:
        """Return the groups' initial models: what their clients' cold starts came to, on average."""
        models = r.models
        self.state.reference = models.replaced(models.bank[:1])
        replies = self._cold_start(founders, self.state.reference, r)
        r.require(replies, "cold start")
        keys, vectors = [key for key, _ in replies.ok], np.stack([update.vector for _, update in replies.ok])
        with r.meter.part("cluster"):
            changes = _changes(vectors, self.state.reference)
            r.note_vectors("updates", keys, changes)
            features = decomposed_cosines(changes, models.count)
            groups = cluster(features, models.count, "kmeans", r.random(Purpose.CLUSTERING))
            self.state.directions = centroids(changes, groups)
            self.assignment.update(zip(keys, groups.tolist(), strict=True))
            mean = ModelAveraging("uniform", robust=r.averaging.robust)
            return models.replaced(mean.next_bank(models, vectors, groups, np.ones(len(groups))))

    def _place(self, clients: Sequence[Client], r: Round) -> None:
        """Cold-start clients and let each join the nearest group; one whose cold start is lost sits the round out."""
        start, directions = self.state.reference, self.state.directions
        assert start is not None
        assert directions is not None
        # One newcomer alone is compared with the largest value in the mean cold starts of the groups.
        known = float(np.abs(start.bank[0, start.layout.trained] + directions).max())
        for key, update in self._cold_start(clients, start, r, known).ok:
            change = _changes(update.vector[np.newaxis], start)
            self.assignment[key] = int(np.argmax(cosines(change, directions)[0]))

    def _cold_start(self, clients: Sequence[Client], start: Models, r: Round, known: float = 0.0) -> Replies[Update]:
        """Let clients take local steps from the one initial model (one exchange)."""
        with r.meter.part("cold_start"):
            return ask_estimates(clients, r, start, steps=COLD_START_STEPS, known=known)


def _changes(vectors: FloatArray, start: Models) -> FloatArray:
    """Return what cold starts changed in the trainable parameters, (M, D)."""
    trained = start.layout.trained
    changes: FloatArray = vectors[:, trained] - start.bank[0, trained]
    return changes


def decomposed_cosines(updates: FloatArray, count: int) -> FloatArray:
    """Return the cosine (M, count) of each update with each of the leading directions of all of them.

    The distance of two rows is the "Euclidean distance of decomposed cosine similarity" (EDC). The directions are
    singular vectors of the matrix of updates: with U S V^T = updates, the cosine of row i with direction j is U_ij
    S_j / |update_i|, so that no direction is ever formed. An update of zeros has cosines of 0.

    Source: Duan et al. 2022 (FlexCFL) and 2020 (FedGroup), EDC.
    Deviation: all singular values are found, where the released code takes a randomised decomposition.
    """
    # Their common scale cancels; without it squares of large updates could overflow.
    scaled = updates / (np.abs(updates).max(initial=0.0) or 1.0)
    with one_thread():
        left, values, _ = svd(scaled, full_matrices=False)
    features = (left * values)[:, :count]
    lengths = np.sqrt(np.sum((left * values) ** 2, axis=1, keepdims=True))
    found: FloatArray = features / np.where(lengths > 0, lengths, 1.0)
    return found
