"""CFL-S: one model for all, and a cluster is split in two once its model has converged and its clients have not."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

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
_BOUNDS = {"relative": (0.6, 0.1, 0.2), "absolute": (0.4, 1.6, -math.inf)}
"""Usual eps_1 and eps_2, and the least gap, by `thresholds`; with the paper's norms there is no such condition."""


@dataclass(frozen=True)
class CFLSSettings(SharedLayers):
    """Federated averaging that splits a cluster in two once its model has converged and its clients have not."""

    asks: ClassVar[frozenset[str]] = frozenset({"updates"})

    linkage: Literal["single", "complete"] = setting(
        "single", "how a cluster is split: as in the paper's algorithm, or as in its released code"
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
    weighting: ClassVar[str] = "uniform"


@dataclass(frozen=True)
class Split:
    """A cluster that was split: the one model that its clients trained then, and the two nodes that took its place.

    `directions` (2, D) are the mean of the clients' normalised updates in each half.
    """

    start: Models
    directions: NDArray[np.float32]
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

    Node 0 is the first cluster, of all clients. A client that was away when its cluster was split is still there.
    """

    nodes: list[Split | int] = field(default_factory=lambda: [0])
    places: dict[str, int] = field(default_factory=dict)

    def at(self, key: str) -> Split | int:
        """Return the split that a client has to pass, or the model that it trains; a new one is at the first node."""
        return self.nodes[self.places.get(key, 0)]

    def model(self, node: int) -> int:
        """Return the model of a node; of a split one, that of its larger half, which has kept it."""
        while isinstance(found := self.nodes[node], Split):
            node = found.halves[0]
        return found

    @property
    def clusters(self) -> dict[int, int]:
        """Node of each present cluster, by its model."""
        return {found: node for node, found in enumerate(self.nodes) if isinstance(found, int)}

    def split(self, model: int, start: Models, directions: FloatArray, halves: Sequence[Sequence[str]]) -> None:
        """Split a model's cluster: the clients of the first half keep the model, the second gets the next number."""
        node, first, new = self.clusters[model], len(self.nodes), len(self.clusters)
        self.nodes[node] = Split(start, directions.astype(np.float32), (first, first + 1))
        self.nodes += [model, new]
        for half, keys in enumerate(halves):
            self.places.update(dict.fromkeys(keys, first + half))


@dataclass
class CFLSState(State):
    """What CFL-S remembers."""

    phase: str = "clustering"
    tree: Tree = field(default_factory=Tree)
    # Largest norm so far of a median client's update.
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
        tree, models = self.state.tree, r.models
        self._descend(r)
        places = {client.key: tree.at(client.key) for client in r.participants}
        updates = yield r.train({key: model for key, model in places.items() if isinstance(model, int)})
        changes: dict[int, dict[str, FloatArray]] = {}
        for key, update in updates:
            tree.places.setdefault(key, tree.clusters[update.model])
            changes.setdefault(update.model, {})[key] = self._change(update, models.bank[update.model], r)
        every = {key: change for own in changes.values() for key, change in own.items()}
        r.note_vectors("updates", list(every), list(every.values()))
        bank = r.average(updates)
        with r.meter.part("cluster"):
            for model in self._at_rest(changes, r):
                if self._split(model, changes[model], r):
                    bank = np.vstack([bank, bank[model]])
        self.assignment.update({key: tree.model(node) for key, node in tree.places.items()})
        self.state.details["models"] = float(len(bank))
        return bank

    def _descend(self, r: Round) -> None:
        """Bring participants down to a present cluster; one whose update is lost stays and sits this round out."""
        tree, layout, settings = self.state.tree, r.models.layout, r.averaging.settings
        waiting = list(r.participants)

        def read(_: str, content: RecordDict) -> Update:
            return read_update(content, layout, 0)

        while splits := {c.key: split for c in waiting if isinstance(split := tree.at(c.key), Split)}:
            requests = [
                r.request(kinds.TRAIN, client, splits[client.key].start.one(0), settings)
                for client in waiting
                if client.key in splits
            ]
            with r.meter.part("place"):
                # One client alone is compared with the model that it was sent.
                usual = max(float(np.abs(split.start.bank).max()) for split in splits.values())
                replies = without_outliers(r.ask(requests, read), r, usual)
            for key, update in replies.ok:
                split = splits[key]
                tree.places[key] = split.nearest(self._change(update, split.start.bank[0], r))
            answered = {key for key, _ in replies.ok}
            waiting = [client for client in waiting if client.key in answered]

    def _change(self, update: Update, start: FloatArray, r: Round) -> FloatArray:
        """Return what a client's training changed (D,) in its cluster's own trained entries.

        Of a gradient it is the step that goes against it. A layer that all clusters share follows all clients, and
        does not rest where a cluster's own layers do.
        """
        compared: BoolArray = r.models.layout.trained & ~r.models.shared
        changed: FloatArray = update.vector - start if isinstance(r.averaging, ModelAveraging) else -update.vector
        return changed[compared]

    def _at_rest(self, changes: Mapping[int, Mapping[str, FloatArray]], r: Round) -> list[int]:
        """Return the models whose clusters rest while their clients do not, in order."""
        state, own = self.state, self.settings
        norms = {
            model: Norms.of(list(found.values()))
            for model, found in sorted(changes.items())
            if len(found) >= LEAST_CLIENTS
        }
        state.scale = max([state.scale, *(found.median for found in norms.values())])
        state.details = {
            "mean_norm": [found.mean for found in norms.values()],
            "median_norm": [found.median for found in norms.values()],
            "largest_norm": [found.largest for found in norms.values()],
        }
        if r.server_round < own.first_split:
            return []
        mean, client, _ = _BOUNDS[own.thresholds]
        eps_1 = mean if own.mean_threshold is None else own.mean_threshold
        eps_2 = client if own.client_threshold is None else own.client_threshold
        scale = state.scale if own.thresholds == "relative" else None
        return [model for model, found in norms.items() if found.rest(eps_1, eps_2, scale)]

    def _split(self, model: int, changes: Mapping[str, FloatArray], r: Round) -> bool:
        """Split a cluster by its clients' updates, where these differ enough; return whether it was."""
        tree, own = self.state.tree, self.settings
        if isinstance(self.k, int) and len(tree.clusters) >= self.k:
            return False
        updates = np.stack(list(changes.values()))
        found = bipartition(updates, own.linkage)
        if found.gap < _BOUNDS[own.thresholds][-1]:
            return False
        groups = found.groups
        # The larger half keeps the model, and with it those that are away; of two equal ones that of the first key.
        order = [0, 1] if 2 * np.sum(groups == 0) >= len(groups) else [1, 0]
        halves = [[key for key, group in zip(changes, groups, strict=True) if group == half] for half in order]
        start = r.models.replaced(r.models.bank[model : model + 1])
        tree.split(model, start, centroids(unit_rows(updates), groups)[order], halves)
        return True


class Norms(NamedTuple):
    """Norms of a cluster's updates: of their mean, of the median client's, and the largest."""

    mean: float
    median: float
    largest: float

    @classmethod
    def of(cls, updates: Sequence[FloatArray]) -> "Norms":
        """Measure updates, M rows of (D,), M at least 1."""
        lengths = np.array([np.sqrt(np.sum(update**2)) for update in updates])
        # One after the other: nothing is held that is as large as all of them.
        mean = sum(updates, start=np.zeros(len(updates[0]))) / len(updates)
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
