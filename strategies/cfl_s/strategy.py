"""CFL-S: one model for all, and a cluster is split in two once its model rests and its clients do not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.averaging import ModelAveraging
from florets.strategies.base.context import Plan, Round
from florets.strategies.base.models import Models
from florets.strategies.base.report import Detail
from florets.strategies.base.state import State
from florets.strategies.base.strategy import Strategy
from florets.strategies.cfl_s.bipartition import LEAST_CLIENTS, Norms, bipartition
from florets.strategies.cfl_s.settings import CFLSSettings
from florets.strategies.cfl_s.tree import Tree
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.cluster import centroids
from florets.strategies.core.cosine import unit_rows
from florets.task.wire import kinds
from florets.task.wire.replies import Update, read_update


@dataclass
class CFLSState(State):
    """What CFL-S remembers.

    Attributes
    ----------
    tree
        The clusters, split and present, and the clients' places in it.
    scale
        Largest norm so far of a median client's update.
    details
        What the round tells in its report.
    """

    phase: str = "clustering"
    tree: Tree = field(default_factory=Tree)
    scale: float = 0.0
    details: dict[str, Detail] = field(default_factory=dict)


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

    def details(self) -> dict[str, Detail]:
        """Return the number of models, and of each cluster that was tested its model and the norms of its updates."""
        return self.state.details

    def plan(self, context: Round) -> Plan[Update]:
        """Let every participant train its cluster's model, once it is known."""
        tree = self.state.tree
        self._descend(context)
        ready = {
            client.key: tree.model(tree.place(client.key))
            for client in context.participants
            if tree.split_at(tree.place(client.key)) is None
        }
        return replace(context.train_assigned(ready), combine=self._combine)

    def _descend(self, context: Round) -> None:
        """Bring participants down to a present cluster; one whose update is lost stays and sits this round out."""
        tree, layout = self.state.tree, context.models.layout
        settings = context.averaging.settings
        waiting = {client.key: client for client in context.participants}
        while waiting := {key: client for key, client in waiting.items() if tree.split_at(tree.place(key))}:
            splits = {key: split for key in waiting if (split := tree.split_at(tree.place(key))) is not None}
            requests = [
                context.request(kinds.TRAIN, client, splits[key].start.one(0), settings)
                for key, client in waiting.items()
            ]

            def read(_: str, content: RecordDict) -> Update:
                return read_update(content, layout, 0)

            with context.meter.part("place"):
                # One client alone is compared with the model that it was sent.
                usual = max(float(np.abs(split.start.bank).max()) for split in splits.values())
                replies = context.reject_outliers(context.ask(requests, read), usual)
            for key, update in replies.ok:
                change = self._change(update, splits[key].start.bank[0])
                tree.places[key] = splits[key].nearest(change[self._compared(context.models)])
            waiting = {key: waiting[key] for key, _ in replies.ok}

    def _combine(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Average each cluster's updates, then test and split the clusters; halves go on from the same model."""
        tree, models = self.state.tree, self.context.models
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
        bank = self.average(updates)
        with self.context.meter.part("cluster"):
            tested = self._test(members, weights)
            for model in tested:
                if self._split(tree.clusters[model], members[model]):
                    bank = np.vstack([bank, bank[model]])
        self.assignment.update({key: tree.model(node) for key, node in tree.places.items()})
        self.state.details["models"] = float(len(bank))
        return bank

    def _compared(self, models: Models) -> BoolArray:
        """Return the entries (R,) whose changes are compared: trained, and of the cluster's model alone.

        A layer that all clusters share follows all clients, and does not rest where a cluster's own layers do.
        """
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
