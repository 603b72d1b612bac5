"""FlexCFL: group clients once, by the directions of their first updates, then FedAvg in each group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.linalg import svd

from florets import Round, State, Steps, Strategy, Update, setting
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import centroids, cluster
from florets.strategies.settings import SharedLayers
from florets.strategies.shared.estimates import ask_estimates
from florets.task.device import one_thread
from florets.task.randomness import Purpose
from florets.task.wire.leaving import MODELS
from florets.zoo.shared.agglomerative import group_into
from florets.zoo.shared.directions import cosines


def group_updates(updates: FloatArray, num_groups: int, measure: str, rng: np.random.Generator) -> IntArray:
    """Return the group (M,) of each client by its update (M, D), at most `num_groups`, in order of first appearance.

    ``"edc"`` is k-means of the decomposed cosines, ``"madc"`` complete linkage of the cosine differences.

    Source: Duan et al. 2022 (FlexCFL, arXiv 2108.09749) and 2020 (FedGroup, arXiv 2010.06870), clustering of the pre-
    trained clients.
    """
    if measure == "madc":
        return group_into(cosine_differences(updates), num_groups, "complete").clusters
    return cluster(decomposed_cosines(updates, num_groups), num_groups, "kmeans", rng)


def decomposed_cosines(updates: FloatArray, count: int) -> FloatArray:
    """Return the cosine (M, count) of each update with each of the leading directions of all of them.

    The distance of two rows is the "Euclidean distance of decomposed cosine similarity" (EDC). The directions are
    singular vectors of the matrix of updates: with U S V^T = updates, the cosine of row i with direction j is U_ij
    S_j / |update_i|, so that no direction is ever formed. A column's entry of largest size is positive; an update of
    zeros has cosines of 0.

    Source: FlexCFL and FedGroup, EDC.
    Deviation: all singular values are found, where the released code takes a randomised decomposition.
    """
    # Their common scale cancels; without it squares of large updates could overflow.
    scaled = updates / (np.abs(updates).max(initial=0.0) or 1.0)
    with one_thread():
        left, values, _ = svd(scaled, full_matrices=False)
    features = (left * values)[:, :count]
    lengths = np.sqrt(np.sum((left * values) ** 2, axis=1, keepdims=True))
    features = features / np.where(lengths > 0, lengths, 1.0)
    largest = np.argmax(np.abs(features), axis=0)
    signs = np.where(np.take_along_axis(features, largest[np.newaxis], axis=0) < 0, -1.0, 1.0)
    signed: FloatArray = features * signs
    return signed


def cosine_differences(updates: FloatArray) -> FloatArray:
    """Return how differently two clients see the others: their "mean of absolute differences of cosines" (MADC).

    Of clients i and j it is the mean, over all other clients z, of |cos(i, z) - cos(j, z)|; of two clients alone 1 -
    cos(i, j).

    Source: FlexCFL and FedGroup, MADC. The two clients' own cosines are left out, as in the released code's
    call for it (`correction=True`): they are 1 and cos(i, j) in one row, and cos(i, j) and 1 in the other.
    """
    similarity = cosines(updates)
    number = len(similarity)
    if number < 3:
        differences: FloatArray = np.clip(1.0 - similarity, 0.0, None)
        np.fill_diagonal(differences, 0.0)
        return differences
    differences = np.zeros_like(similarity)
    for row in range(number):
        apart = np.abs(similarity - similarity[row])
        # Columns `row` and j are the two clients' own.
        own = apart[:, row] + np.diagonal(apart)
        differences[row] = (apart.sum(axis=1) - own) / (number - 2)
        differences[row, row] = 0.0
    return np.maximum(differences, differences.T)


def nearest_direction(update: FloatArray, directions: FloatArray) -> int:
    """Return the group whose direction (C, D) has the largest cosine with an update (D,); the first among equals.

    Source: FlexCFL, cold start of a newcomer: the group of least normalised cosine dissimilarity.
    """
    return int(np.argmax(cosines(update[np.newaxis], directions)[0]))


FOUNDERS = 20
"""Clients that form the groups, for each of the k groups."""
COLD_START_STEPS = 50
"""Local steps of a client's cold start, from the one initial model."""


@dataclass(frozen=True)
class FlexCFLSettings(SharedLayers):
    """The server groups clients once, by the directions of their first updates; then FedAvg in each group."""

    asks: ClassVar[frozenset[str]] = frozenset({"updates"})

    measure: Literal["edc", "madc"] = setting(
        "edc",
        "how updates are compared: cosines with their leading directions (k-means), or how differently two clients "
        "see the others (complete linkage)",
    )

    # Updates are comparable only where they start from one model.
    usual_initial = "same"


@dataclass
class FlexCFLState(State):
    """What FlexCFL remembers.

    Attributes
    ----------
    reference
        The one initial model, from which every client's cold start begins; None before round 1.
    directions
        Mean update of each group's clients at the cold start, (C, D); None before. Of trainable parameters.
    """

    phase: str = "clustering"
    reference: Models | None = None
    directions: FloatArray | None = None


class FlexCFL(Strategy[FlexCFLSettings, FlexCFLState]):
    """Static groups from the directions of the clients' first updates.

    In round 1 some clients take a few local steps from the one initial model, their cold start. What these changed is
    grouped; a group's model is the mean of its clients' models, and its direction that of their updates. Every other
    client is cold-started when it first takes part, and joins the group whose direction is nearest to its own. Groups
    stay.

    With gradient averaging the cold start takes local steps all the same.

    Source: Duan et al. 2022 (FlexCFL, arXiv 2108.09749): cold start, EDC and MADC.
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
        state = self.state
        is_first = state.directions is None
        state.phase = "clustering" if is_first else "stable"
        formed = 0
        if is_first:
            number = min(FOUNDERS * r.models.count, len(r.online))
            drawn = r.random(Purpose.FIRST_ROUND).choice(len(r.online), size=number, replace=False)
            r.models = self._form_groups([r.online[index] for index in np.sort(drawn)], r)
            formed = len(self.assignment)
        started = formed + self._place(r.newcomers(self.assignment), r)
        state.details = {"cold_started": float(started)} if started else {}
        updates = yield r.train(self.assignment)
        return r.average(updates)

    def _form_groups(self, founders: Sequence[Client], r: Round) -> Models:
        """Return the groups' initial models: what their clients' cold starts came to, on average."""
        models = r.models
        self.state.reference = models.replaced(models.bank[:1])
        replies = self._cold_start(founders, r)
        r.require(replies, "cold start")
        with r.meter.part("cluster"):
            vectors = np.stack([update.vector for _, update in replies.ok])
            changes = self._changes(vectors)
            r.note_vectors("updates", [key for key, _ in replies.ok], changes)
            groups = group_updates(changes, models.count, self.settings.measure, r.random(Purpose.CLUSTERING))
            self.state.directions = centroids(changes, groups)
            self.assignment.update({key: int(group) for (key, _), group in zip(replies.ok, groups, strict=True)})
            ones = np.ones(len(groups))
            return models.replaced(
                ModelAveraging("uniform", robust=r.averaging.robust).next_bank(models, vectors, groups, ones)
            )

    def _place(self, clients: Sequence[Client], r: Round) -> int:
        """Cold-start clients and let each join the nearest group; return how many did.

        One whose cold start was lost sits this round out.
        """
        if not clients:
            return 0
        assert self.state.directions is not None
        replies = self._cold_start(clients, r)
        changes = {key: self._changes(update.vector[np.newaxis])[0] for key, update in replies.ok}
        found = {key: nearest_direction(change, self.state.directions) for key, change in changes.items()}
        self.assignment.update(found)
        return len(found)

    def _cold_start(self, clients: Sequence[Client], r: Round) -> Replies[Update]:
        """Let clients take local steps from the one initial model (one exchange)."""
        assert self.state.reference is not None
        with r.meter.part("cold_start"):
            start, directions, known = self.state.reference, self.state.directions, 0.0
            if directions is not None:
                # One newcomer alone is compared with the largest value in the mean cold starts of the groups.
                known = float(np.abs(start.bank[0, start.layout.trained] + directions).max())
            return ask_estimates(clients, r, start, steps=COLD_START_STEPS, known=known)

    def _changes(self, vectors: FloatArray) -> FloatArray:
        """Return what cold starts changed in the trainable parameters, (M, D)."""
        assert self.state.reference is not None
        trained = self.state.reference.layout.trained
        changes: FloatArray = vectors[:, trained] - self.state.reference.bank[0, trained]
        return changes
