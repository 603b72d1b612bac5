"""SR-FCA: clusters by how well clients' models do on each other's data, refined while they train robustly."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from florets import Round, Settings, State, Steps, Strategy
from florets.strategies.base.models import Models, Updates
from florets.strategies.base.outliers import without_far_losses
from florets.strategies.base.report import Client
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import canonical, finite_losses, group_means
from florets.strategies.settings import MODELS_OF_GROUPS
from florets.strategies.shared.estimates import ask_estimates
from florets.task.randomness import Purpose
from florets.zoo.shared.agglomerative import group_by_largest_gap, joined, merge_tree


@dataclass(frozen=True)
class SRFCASettings(Settings):
    """Clients are grouped by how well each one's own model does on the others' data; clusters are refined twice."""

    compares = "clients"
    one_model: ClassVar[bool] = True
    """Distances say how many models there are; `k` is not used."""
    asks: ClassVar[frozenset[str]] = frozenset({"losses", "updates"})
    follows = MODELS_OF_GROUPS


SOLO_STEPS = 250
"""Optimiser steps of each client's own model, in round 1."""
LEAST_SIZE = 2
"""Clients that a cluster needs; smaller ones are dissolved."""
REFINE_STEPS, REFINE_EVERY = 2, 3
"""Refinements, in which clients are reassigned and near clusters merge, and rounds of training before each."""
TRIM = 0.15
"""Beta, the fraction of the updates left out at either end of each average, where no rule of `robust` is."""
_FLOOR = 1e-3


@dataclass
class SRFCAState(State):
    """What is remembered of the first round, and of the refinements."""

    phase: str = "clustering"
    # Clients of the first round, sorted, and the loss (M, M) of each one's own model (column) on each one's data.
    keys: list[str] = field(default_factory=list)
    cross: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    # Clusters nearer than this merge in a refinement; None before the first round.
    threshold: float | None = None
    # Refinements so far, and the round of the next one.
    refined: int = 0
    due: int = 0


class SRFCA(Strategy[SRFCASettings, SRFCAState]):
    """Group clients by cross losses, then train and refine.

    Round 1: every client trains a model alone and evaluates everybody's. Two clients are as far apart as the mean of
    their models' losses on each other's data; a random client and its neighbours make a cluster, then another of
    those left, and small clusters are dissolved. Then each cluster trains with a trimmed mean. At each refinement
    every client goes to the nearest cluster, and clusters that are near each other merge.

    Round 1 sends M models to each of M clients.

    Source: Vardhan et al. 2024 (SR-FCA): ONE_SHOT, then REFINE, which is TrimmedMeanGD, RECLUSTER and MERGE. 250
    steps, at least 2 clients, 2 refinements and beta = 0.15 are those of its experiment on rotated MNIST. Deviation:
    the threshold is one of mean losses (the published code divides the batches' mean losses by the number of samples
    once more); it is where single linkage has its largest ratio, and later clusters merge if they are no farther than
    the farthest neighbours of round 1: their models have been trained less than those of single clients, so that all
    losses between clusters may lie in that gap. A cluster of exactly `LEAST_SIZE` stays in round 1 as in the
    refinements; the code's round 1 dissolves it. Clusters go on with their models in each refinement, the largest
    one's where they merge, in place of starting again; a client that was not in round 1 is placed by its loss alone.
    """

    Settings = SRFCASettings
    State = SRFCAState

    def round(self, r: Round) -> Steps:
        """Form clusters, refine them where that is due, or place newcomers; then train."""
        state = self.state
        state.phase = "clustering"
        if state.threshold is None:
            r.models = self._one_shot(r)
        elif state.refined < REFINE_STEPS and r.server_round >= state.due:
            r.models = self._refine(r)
        else:
            state.phase = "training" if state.refined < REFINE_STEPS else "stable"
            self.assignment.update(r.ask_lowest(r.newcomers(self.assignment)))
        updates = yield r.train(self.assignment)
        if self.averaging.robust is not None:
            return r.average(updates)
        models, vectors = r.models, np.stack([update.vector for _, update in updates])
        layout, trained = models.layout, Updates(updates).models
        return trimmed_means(models.bank, vectors, trained, TRIM, layout.integers, layout.untrained)

    def _one_shot(self, r: Round) -> Models:
        """Let clients train alone, ask for all cross losses, and form clusters."""
        state = self.state
        start = r.models.replaced(r.models.bank[:1])
        with r.meter.part("describe"):
            estimates = ask_estimates(r.online, r, start, steps=SOLO_STEPS)
            r.require(estimates, "model of its own")
        columns = {key: place for place, (key, _) in enumerate(estimates.ok)}
        solo = start.replaced(np.stack([update.vector for _, update in estimates.ok]))
        clients = [client for client in r.online if client.key in columns]
        state.keys, losses = self._losses(clients, r, solo)
        with r.meter.part("cluster"):
            state.cross = losses[:, [columns[key] for key in state.keys]]
            r.note_vectors("losses", state.keys, state.cross)
            distances = mutual(state.cross)
            threshold = largest_ratio(distances)
            groups = pivot_groups(distances, threshold, r.random(Purpose.CLUSTERING))
            large = np.bincount(groups)[groups] >= LEAST_SIZE
            members = np.flatnonzero(large | ~large.any())
            clusters = canonical(groups[members])
        state.threshold = farthest_neighbours(distances, threshold)
        state.due = r.server_round + REFINE_EVERY
        self.assignment.update(zip([state.keys[one] for one in members], clusters.tolist(), strict=True))
        return start.replaced(np.repeat(start.bank, int(clusters.max()) + 1, axis=0))

    def _refine(self, r: Round) -> Models:
        """Assign everybody anew, and merge clusters that are near each other."""
        state, count = self.state, r.models.count
        keys, losses = self._losses(r.online, r, r.models)
        r.note_vectors("losses", keys, losses)
        with r.meter.part("cluster"):
            assigned = nearest_of_large(distances_to_clusters(losses, self._cross(keys, count)), LEAST_SIZE)
            present = np.unique(assigned)
            clusters = np.searchsorted(present, assigned)
            between = mutual(group_means(losses[:, present], clusters))
            near = pivot_groups(between, float(state.threshold or 0.0), r.random(Purpose.CLUSTERING))
            looked_at = np.arange(len(present), dtype=np.int64)
            numbers, heirs = joined(looked_at, near, np.bincount(clusters), len(present))
        # Who did not answer follows its cluster; where that is gone, it is placed when it takes part.
        moved = {int(old): int(new) for old, new in zip(present, numbers, strict=True)}
        kept = {key: moved[model] for key, model in self.assignment.items() if model in moved}
        self.assignment.clear()
        self.assignment.update(kept | {key: int(numbers[one]) for key, one in zip(keys, clusters, strict=True)})
        state.refined, state.due = state.refined + 1, r.server_round + REFINE_EVERY
        return r.models.replaced(r.models.bank[present[heirs]])

    def _cross(self, keys: Sequence[str], count: int) -> FloatArray:
        """Return the mean loss of each client's own model on the clusters' data (M, C), NaN where it is not known."""
        state = self.state
        members = [row for row, key in enumerate(state.keys) if key in self.assignment]
        clusters = np.array([self.assignment[state.keys[row]] for row in members], dtype=np.int64)
        means = dict(zip(state.keys, group_means(state.cross[members], clusters, count).T, strict=True))
        return np.stack([means.get(key, np.full(count, np.nan)) for key in keys])

    def _losses(self, clients: Sequence[Client], r: Round, models: Models) -> tuple[list[str], FloatArray]:
        """Ask for losses, without those that are outliers; return the keys and the losses (M, K)."""
        with r.meter.part("losses"):
            replies = without_far_losses(r.ask_losses(clients, models), r)
        r.require(replies, "loss vector")
        return [key for key, _ in replies.ok], np.stack([reply.losses for _, reply in replies.ok])


def mutual(losses: FloatArray) -> FloatArray:
    """Return the mean (M, M) of both cross losses of any two clients, 0 on the diagonal.

    Row i of `losses` has those of everybody's model on i's data.

    Source: Vardhan et al. 2024 (SR-FCA), the cross-loss distance of two clients.
    """
    clean = finite_losses(losses)
    distances = (clean + clean.T) / 2
    np.fill_diagonal(distances, 0.0)
    return distances


def largest_ratio(distances: FloatArray) -> float:
    """Return where single linkage is cut: a merge's distance is the largest multiple of that of the merge before.

    A factor and not a difference: of groups that are all unlike each other some are more so, and losses on them may
    lie further from one another than from those within a group. Distances below a thousandth of the largest count
    alike.
    """
    floor = _FLOOR * float(distances.max(initial=0.0))
    if floor == 0.0:
        return np.inf
    # Single linkage asks for the order of distances alone, so that it makes the same tree of their logarithms.
    found = group_by_largest_gap(np.log(np.maximum(distances, floor) / floor), "single")
    return floor * float(np.exp(found.threshold))


def pivot_groups(distances: FloatArray, threshold: float, rng: np.random.Generator) -> IntArray:
    """Return the groups (M,) of a random pivot with all that are at most `threshold` from it, then of the next one.

    Each pivot is drawn from those that are left. Numbered from 0 in order of first appearance.

    Source: the released code of SR-FCA, `correlation_clustering`, in ONE_SHOT and in MERGE. The paper asks for a
    correlation clustering of the graph of neighbours, of which this is the usual approximation.
    """
    groups = np.full(len(distances), -1, dtype=np.int64)
    while len(left := np.flatnonzero(groups < 0)):
        pivot = rng.choice(left)
        groups[left[distances[pivot, left] <= threshold]] = pivot
    return canonical(groups)


def farthest_neighbours(distances: FloatArray, threshold: float) -> float:
    """Return the largest distance below the threshold at which single linkage merges two groups, or 0."""
    heights = merge_tree(distances, "single")[:, 2]
    return float(heights[heights < threshold].max(initial=0.0))


def distances_to_clusters(losses: FloatArray, cross: FloatArray) -> FloatArray:
    """Return the distance (M, C) of each client to each cluster.

    The mean of the loss of each cluster's model on the client's data, and of that of the client's model on the
    cluster's (`cross`); the first alone where the second is not known (NaN).

    Source: Vardhan et al. 2024 (SR-FCA), RECLUSTER. Deviation: what is not known is left out.
    """
    clean = finite_losses(losses)
    distances: FloatArray = (clean + np.where(np.isfinite(cross), cross, clean)) / 2
    return distances


def nearest_of_large(distances: FloatArray, least_size: int) -> IntArray:
    """Return the nearest cluster of each client (M,) by `distances` (M, C), once those too small are dissolved.

    Who was in one of these goes to the nearest of the others. Where no cluster is large enough all stay.
    """
    nearest: IntArray = distances.argmin(axis=1)
    large = np.bincount(nearest, minlength=distances.shape[1]) >= least_size
    if not large.any():
        return nearest
    allowed: IntArray = np.where(large, distances, np.inf).argmin(axis=1)
    return allowed


def trimmed_mean(rows: FloatArray, share: float) -> FloatArray:
    """Return the mean (R,) of each coordinate of rows (P, R) without floor(share P) values at either end.

    With nothing left out it is the plain mean, summed in the order of the values, whatever that of the rows.

    Source: Yin et al. 2018, Def. 2.
    """
    # The small constant keeps products such as 0.07 * 100 from losing one by rounding.
    cut = int(share * len(rows) + 1e-9)
    mean: FloatArray = np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0)
    return mean


def trimmed_means(
    bank: FloatArray,
    updates: FloatArray,
    assignment: IntArray,
    share: float,
    integers: BoolArray,
    untrained: BoolArray,
) -> FloatArray:
    """Return the next bank (K, R) by the trimmed mean of each model's updates, every client counting alike.

    Of counters (`integers`) the largest among the members is kept, of running statistics (`untrained`) the plain
    mean. A model without members keeps its bits.
    """
    result = np.array(bank, dtype=np.float64)
    for model in np.unique(assignment):
        members = updates[assignment == model]
        result[model] = trimmed_mean(members, share)
        result[model, untrained] = members[:, untrained].mean(axis=0)
        result[model, integers] = members[:, integers].max(axis=0)
    return result
