"""CFL-S: one model for all, and a cluster is split in two once its model has converged and its clients have not."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from flwr.app import RecordDict

from florets import Round, State, Steps, Strategy, Update, setting
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.outliers import without_outliers
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import centroids
from florets.strategies.core.outliers import lower_median
from florets.strategies.settings import SharedLayers
from florets.task.wire import kinds
from florets.task.wire.replies import read_update
from florets.zoo.shared.agglomerative import group_into
from florets.zoo.shared.directions import cosines, unit_rows

LEAST_CLIENTS = 3
"""Of fewer clients no cluster is split."""


@dataclass(frozen=True)
class Norms:
    """Norms of a cluster's updates: of their mean, of the median client's, and the largest."""

    mean: float
    median: float
    largest: float

    @classmethod
    def of(cls, updates: Sequence[FloatArray] | FloatArray, weights: FloatArray | None = None) -> "Norms":
        """Measure updates, M rows of (D,), M at least 1; the weights (M,) are those of the average, None: uniform."""
        factors = np.ones(len(updates)) if weights is None else weights
        # Row after row, as models are averaged: nothing is held that is as large as all of them.
        lengths = np.array([np.sqrt(np.sum(update**2)) for update in updates])
        mean = np.zeros(len(updates[0]))
        for factor, update in zip(factors, updates, strict=True):
            mean += factor * update
        mean /= factors.sum()
        return cls(float(np.sqrt(np.sum(mean**2))), lower_median(lengths), float(lengths.max()))

    def rest(self, eps_1: float, eps_2: float, scale: float | None) -> bool:
        """Return whether the shared model is stationary and single clients are not.

        `eps_1` bounds the mean update's norm from above, `eps_2` a client's from below. `scale` is the largest median
        norm of the run so far: then `eps_1` is in units of the median client's norm, `eps_2` of the scale, and the
        client is the median one. None: both are absolute, and the client is the one with the largest norm.

        Source: Sattler et al. 2021 (arXiv 1910.01991), the two stopping criteria.
        Deviation: with a scale. Absolute norms hold for one network, learning rate and number of clients; with Adam
        they are always or never met. The median client's norm cannot be set by one that lies.
        """
        if scale is None:
            return self.mean < eps_1 and self.largest > eps_2
        return self.mean < eps_1 * self.median and self.median > eps_2 * scale


class Halves(NamedTuple):
    """A cluster in two groups (M,), 0 that of the first client; the largest cosine across, the mean one within."""

    groups: IntArray
    across: float
    within: float

    @property
    def gap(self) -> float:
        """How much more alike clients within a group are than the two most similar ones of different groups.

        Source: Sattler et al. 2021, separation gap.
        Deviation: there the least similarity within a group counts. A group that is to be split again is a mixture,
        whose least similarity is no larger than that across.
        """
        return self.within - self.across


def bipartition(updates: FloatArray, linkage: str) -> Halves:
    """Split clients in two groups such that the largest similarity between the groups is small.

    `updates` (M, D) are of at least `LEAST_CLIENTS` clients, in the order of their keys. ``"single"`` linkage merges
    the two groups with the most similar pair of clients until two groups are left, which makes the largest similarity
    between these as small as it can be; ``"complete"`` merges by the least similar pair.

    Source: Sattler et al. 2021, optimal bipartitioning algorithm (single linkage); the released code takes complete.
    """
    similarity = cosines(updates)
    groups = group_into(1.0 - similarity, 2, linkage).clusters
    same = np.equal.outer(groups, groups)
    pairs = np.triu(np.ones_like(same), 1)
    return Halves(groups, float(similarity[~same].max()), float(similarity[same & pairs].mean()))


@dataclass(frozen=True)
class CFLSSettings(SharedLayers):
    """Federated averaging that splits a cluster in two once its model has converged and its clients have not."""

    asks: ClassVar[frozenset[str]] = frozenset({"updates"})

    linkage: Literal["single", "complete"] = setting(
        "single", "how a cluster is split: as in the paper's algorithm, or as in its released code"
    )
    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of a cluster's average: uniform, or by examples"
    )
    thresholds: Literal["relative", "absolute"] = setting(
        "relative", "what the two thresholds are measured in: other norms of the run, or the paper's absolute norms"
    )
    mean_threshold: float | None = setting(
        None,
        "eps_1: a cluster may be split once the norm of its mean update is below this, relative to its median "
        "client's; null: 0.6, absolute 0.4",
        above=0,
    )
    client_threshold: float | None = setting(
        None,
        "eps_2: and while the norm of a client's update is above this, relative to the largest so far of a median "
        "client; null: 0.1, absolute 1.6",
        least=0,
    )
    first_split: int = setting(1, "no split before this round (the released code: 21)", least=1)

    compares = "participants"
    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[float, float, float]:
        """eps_1, eps_2 and the least gap.

        By the gap the mean cosine similarity within the halves exceeds the largest across; with the paper's absolute
        norms there is no such condition.
        """
        mean, client, gap = (0.6, 0.1, 0.2) if self.thresholds == "relative" else (0.4, 1.6, -math.inf)
        return (
            mean if self.mean_threshold is None else self.mean_threshold,
            client if self.client_threshold is None else self.client_threshold,
            gap,
        )


@dataclass(frozen=True)
class Split:
    """A cluster that was split.

    Attributes
    ----------
    start
        The one model that its clients trained when it was split.
    directions
        Mean of the clients' normalised updates in each half, (2, D) float32.
    halves
        The two nodes that took its place.
    """

    start: Models
    directions: np.ndarray[tuple[int, int], np.dtype[np.float32]]
    halves: tuple[int, int]

    def __deepcopy__(self, _: object) -> "Split":
        # It is never changed: a copy of a strategy's state can share it.
        return self

    def nearest(self, update: FloatArray) -> int:
        """Return the half whose direction is nearest to a client's update (D,) of `start`."""
        similarity = cosines(update[np.newaxis], self.directions.astype(np.float64))[0]
        return self.halves[int(np.argmax(similarity))]


@dataclass
class Tree:
    """Clusters of clients as nodes of a tree: a split one holds its `Split`, a present one the number of its model.

    Attributes
    ----------
    nodes
        Node 0 is the first cluster, of all clients.
    places
        Node of each client, by key. One that was away when its cluster was split is still at that node.
    """

    nodes: list[Split | int] = field(default_factory=lambda: [0])
    places: dict[str, int] = field(default_factory=dict)

    def place(self, key: str) -> int:
        """Return the node of a client, the first where it is new."""
        return self.places.get(key, 0)

    def split_at(self, node: int) -> Split | None:
        """Return how a node was split; None where it is a present cluster."""
        found = self.nodes[node]
        return found if isinstance(found, Split) else None

    def model(self, node: int) -> int:
        """Return the model of a node; of a split one, that of its larger half, which has kept it."""
        while isinstance(found := self.nodes[node], Split):
            node = found.halves[0]
        return found

    @property
    def clusters(self) -> dict[int, int]:
        """Node of each present cluster, by its model."""
        return {found: node for node, found in enumerate(self.nodes) if isinstance(found, int)}

    def split(
        self, node: int, start: Models, directions: FloatArray, halves: tuple[Iterable[str], Iterable[str]]
    ) -> None:
        """Split a cluster: the first half keeps its model, the second gets the next number.

        `halves` are the keys of the clients in each; who is in neither has to be placed.
        """
        model = self.nodes[node]
        assert isinstance(model, int)
        first = len(self.nodes)
        numbers = (model, len(self.clusters))
        self.nodes[node] = Split(start, directions.astype(np.float32), (first, first + 1))
        for half, (number, keys) in enumerate(zip(numbers, halves, strict=True)):
            self.nodes.append(number)
            self.places.update(dict.fromkeys(keys, first + half))


@dataclass
class CFLSState(State):
    """What CFL-S remembers.

    Attributes
    ----------
    tree
        The clusters, split and present, and the clients' places in it.
    scale
        Largest norm so far of a median client's update.
    """

    phase: str = "clustering"
    tree: Tree = field(default_factory=Tree)
    scale: float = 0.0


class CFLS(Strategy[CFLSSettings, CFLSState]):
    """Clustered federated learning by recursive bipartition; the number of models grows.

    All clients begin in one cluster, with one model. After a round in which the mean update of a cluster was short
    and its clients' updates were not, the cluster is split by the cosine similarity of these updates, and both halves
    go on from its model. With `k` an integer there are no more models than that.

    Any part of the clients may take part: a cluster is tested and split by those that did, whose updates are all of
    one model. Whoever was away, or is new, goes down the tree when it takes part: it trains the model on which a
    cluster was split, and joins the half with the nearer direction, an exchange for each split that it passes.

    Source: Sattler, Mueller and Samek 2021 (arXiv 1910.01991): bipartition, stopping criteria, parameter tree; the
    released code (felisat/clustered-federated-learning).
    Deviation: thresholds are relative by default (`Norms.rest`), and a gap between the halves is then asked for
    (`Halves.gap`): near its optimum every cluster rests while its clients do not, each drawn to its own samples.
    These defaults are ours, found on digits.
    Deviation: the tree keeps the mean direction of each half, not every client's update, which would be a model for
    each client in each checkpoint.
    Deviation: layers that are shared (`shared_layers`) count neither in the test nor in the split.
    Deviation: halves hold client keys. In the released code they hold positions within the parent, and from the
    second split on clients are in wrong clusters.
    """

    Settings = CFLSSettings
    State = CFLSState

    def round(self, r: Round) -> Steps:
        """Let every participant train its cluster's model, once it is known; then test and split the clusters."""
        tree = self.state.tree
        self._descend(r)
        ready = {
            client.key: tree.model(tree.place(client.key))
            for client in r.participants
            if tree.split_at(tree.place(client.key)) is None
        }
        updates = yield r.train(ready)
        return self._combine(updates, r)

    def _descend(self, r: Round) -> None:
        """Bring participants down to a present cluster; one whose update is lost stays and sits this round out."""
        tree, layout = self.state.tree, r.models.layout
        settings = r.averaging.settings
        waiting = list(r.participants)
        while splits := {c.key: split for c in waiting if (split := tree.split_at(tree.place(c.key))) is not None}:
            requests = [
                r.request(kinds.TRAIN, client, splits[client.key].start.one(0), settings)
                for client in waiting
                if client.key in splits
            ]

            def read(_: str, content: RecordDict) -> Update:
                return read_update(content, layout, 0)

            with r.meter.part("place"):
                # One client alone is compared with the model that it was sent.
                usual = max(float(np.abs(split.start.bank).max()) for split in splits.values())
                replies = without_outliers(r.ask(requests, read), r, usual)
            for key, update in replies.ok:
                change = self._change(update, splits[key].start.bank[0])
                tree.places[key] = splits[key].nearest(change[self._compared(r.models)])
            answered = {key for key, _ in replies.ok}
            waiting = [client for client in waiting if client.key in answered]

    def _combine(self, updates: Sequence[tuple[str, Update]], r: Round) -> FloatArray:
        """Average each cluster's updates, then test and split the clusters; halves go on from the same model."""
        tree, models = self.state.tree, r.models
        compared = self._compared(models)
        by_examples = self.settings.weighting == "examples"
        members: dict[int, dict[str, FloatArray]] = {}
        weights: dict[int, list[float]] = {}
        for key, update in updates:
            tree.places.setdefault(key, tree.clusters[update.model])
            change = self._change(update, models.bank[update.model])[compared]
            members.setdefault(update.model, {})[key] = change
            weights.setdefault(update.model, []).append(update.num_examples if by_examples else 1.0)
        compare = {key: change for changes in members.values() for key, change in changes.items()}
        self.context.note_vectors("updates", list(compare), list(compare.values()))
        bank = r.average(updates)
        with self.context.meter.part("cluster"):
            tested = self._test(members, weights)
            for model in tested:
                if self._split(tree.clusters[model], members[model]):
                    bank = np.vstack([bank, bank[model]])
        self.assignment.update({key: tree.model(node) for key, node in tree.places.items()})
        self.state.details["models"] = float(len(bank))
        return bank

    def _compared(self, models: Models) -> BoolArray:
        """Return the entries (R,) whose changes are compared: trained, and of the cluster's model alone."""
        # A layer that all clusters share follows all clients, and does not rest where a cluster's own layers do.
        compared: BoolArray = models.layout.trained & ~models.shared
        return compared

    def _change(self, update: Update, start: FloatArray) -> FloatArray:
        """Return what a client's training changed; of a gradient, the step that goes against it."""
        changed: FloatArray = update.vector - start if isinstance(self.averaging, ModelAveraging) else -update.vector
        return changed

    def _test(
        self, members: Mapping[int, Mapping[str, FloatArray]], weights: Mapping[int, Sequence[float]]
    ) -> list[int]:
        """Return the models whose clusters rest while their clients do not, in order."""
        state, own = self.state, self.settings
        norms = {
            model: Norms.of(list(changes.values()), np.array(weights[model]))
            for model, changes in sorted(members.items())
            if len(changes) >= LEAST_CLIENTS
        }
        state.scale = max([state.scale, *(found.median for found in norms.values())])
        state.details = {
            "tested": [float(model) for model in norms],
            "mean_norm": [found.mean for found in norms.values()],
            "median_norm": [found.median for found in norms.values()],
            "largest_norm": [found.largest for found in norms.values()],
        }
        if self.context.server_round < own.first_split:
            return []
        scale = state.scale if own.thresholds == "relative" else None
        mean, client, _ = own.bounds
        return [model for model, found in norms.items() if found.rest(mean, client, scale)]

    def _split(self, node: int, changes: Mapping[str, FloatArray]) -> bool:
        """Split a cluster by its clients' updates, where these differ enough; return whether it was."""
        tree, own = self.state.tree, self.settings
        if isinstance(self.k, int) and len(tree.clusters) >= self.k:
            return False
        keys, updates = list(changes), np.stack(list(changes.values()))
        found = bipartition(updates, own.linkage)
        if found.gap < own.bounds[-1]:
            return False
        groups = found.groups
        # The larger half keeps the model, and with it those that are away; of two equal ones that of the first key.
        order = (0, 1) if 2 * np.sum(groups == 0) >= len(groups) else (1, 0)
        halves = [[key for key, group in zip(keys, groups, strict=True) if group == half] for half in order]
        model = tree.model(node)
        start = self.context.models.replaced(self.context.models.bank[model : model + 1])
        tree.split(node, start, centroids(unit_rows(updates), groups)[list(order)], (halves[0], halves[1]))
        return True
