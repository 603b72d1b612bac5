"""FeSEM: after local training each client joins the nearest of K models, which become their clients' means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from florets import Round, State, Steps, Strategy, Update, setting
from florets.strategies.base.models import Models, Updates
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import cluster, match_overlap
from florets.strategies.settings import SharedLayers
from florets.task.randomness import Purpose
from florets.task.wire import Layout


@dataclass(frozen=True)
class FeSEMSettings(SharedLayers):
    """After local training each client joins the nearest of K models, which become their clients' means."""

    clustering: Literal["nearest", "kmeans"] = setting(
        "nearest",
        "a client joins the model that is nearest to its own, or the round's models are grouped anew by k-means, as "
        "in the released code",
    )
    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of the means, and of k-means: uniform, or by examples (WeCFL)"
    )
    layers: list[str] = setting([], "name prefixes of the layers whose weights are compared; none: all")

    # Distances are of models, not of gradients.
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("models",),
        "personal": ("none", "intercept", "slopes"),
    }
    # Models are comparable only where they start from one.
    usual_initial = "same"


def nearest_centres(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the centre (C, D) that is nearest to each model (M, D) in Euclidean distance; the first among equals.

    Source: Long et al. 2023 (FeSEM, arXiv 2005.01026), E-step.
    """
    # Differences, not inner products: models of one cluster agree in most of their digits.
    distances = np.stack([np.sum((vectors - centre) ** 2, axis=1) for centre in centres], axis=1)
    nearest: IntArray = np.argmin(distances, axis=1).astype(np.int64)
    return nearest


def matched(clusters: IntArray, before: IntArray, models: IntArray) -> IntArray:
    """Return, of clusters (M,) found anew, the model of each client such that the most clients keep theirs.

    `before` (M,) are the models that they trained, of `models`, rising, which are at least as many as clusters.
    """
    return models[match_overlap(clusters, np.searchsorted(models, before), len(models))][clusters]


@dataclass
class FeSEMState(State):
    """What FeSEM remembers.

    Attributes
    ----------
    centres
        How many of the models, from the first, ever had a client; 0 before the first clustering.
    """

    phase: str = "clustering"
    centres: int = 0


class FeSEM(Strategy[FeSEMSettings, FeSEMState]):
    """Multi-centre federated learning by expectation-maximisation on models.

    In round 1 all that are online train one model, and k-means of what they return founds the K models. From then on
    clients train their own; each joins the model that is nearest to what it returned (E-step), and every model is
    then the mean of what its clients returned (M-step). With WeCFL's weights (`weighting=examples`) means and k-means
    are weighted by examples.

    Only the participants of a round are assigned anew. A model that none of them is nearest to stays as it is.

    Source: Long et al. 2023 (FeSEM, arXiv 2005.01026), E- and M-step; Ma et al. (WeCFL, arXiv 2202.06187), weights.
    With `clustering=kmeans`: the released codes, which group the models anew by k-means.
    Deviation: round 1 is everybody's, whatever `fraction_train`: few participants could not found K models, and
    hardly anything mends them later.
    Deviation: trainable parameters alone are compared, without counters and running statistics.
    Deviation: the paper has no newcomers; one takes the model with the lowest loss, because a model that it trained
    from the common start would be far from all centres and nearest to the same one, whoever it is.
    Deviation: models found anew by k-means are matched with the last round's, so that a cluster keeps its number.
    """

    Settings = FeSEMSettings
    State = FeSEMState

    def check(self, models: Models) -> None:
        """Refuse fewer models than clusters, and layers that the models do not have."""
        super().check(models)
        self._compared(models.layout)

    def round(self, r: Round) -> Steps:
        """Let every participant train its model, in round 1 the first one; then E-step and M-step."""
        if (centres := self.state.centres) > 0:
            self.assignment.update(r.ask_lowest(r.newcomers(self.assignment), range(centres)))
            updates = yield r.train(self.assignment)
        else:
            if r.models.count > 1:
                r.participants = r.online
            updates = yield r.train({client.key: 0 for client in r.participants})
        return self._combine(updates)

    def _combine(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """E-step, then M-step."""
        context, state = self.context, self.state
        vectors = np.stack([update.vector for _, update in updates])
        weights, trained = Updates(updates).examples, Updates(updates).models
        with context.meter.part("cluster"):
            assigned = self._assign([key for key, _ in updates], vectors, trained, weights)
        if state.centres:
            state.details = {"moved": float(np.sum(assigned != trained))}
        state.centres = max(state.centres, int(assigned.max()) + 1)
        self.assignment.update({key: int(model) for (key, _), model in zip(updates, assigned, strict=True)})
        return context.averaging.next_bank(context.models, Updates(updates), assigned, weights)

    def _assign(self, keys: Sequence[str], vectors: FloatArray, trained: IntArray, weights: FloatArray) -> IntArray:
        """Return the model of each client (P,) whose weights came back."""
        models, centres = self.context.models, self.state.centres
        compared = self._compared(models.layout)
        rows, places = vectors[:, compared], models.bank[:centres][:, compared]
        self.context.note_vectors("models", keys, rows)
        if centres and self.settings.clustering == "nearest":
            return nearest_centres(rows, places)
        counts = weights if self.settings.weighting == "examples" else None
        # Of clients that are away nobody knows where they belong now: those that are here are grouped into as many
        # clusters as they had, and the other models stay.
        everybody = not centres or set(keys) >= self.assignment.keys()
        free = np.arange(models.count) if everybody else np.unique(trained)
        found = cluster(rows, len(free), "kmeans", self.context.random(Purpose.CLUSTERING), counts)
        return matched(found, trained, free) if centres else found

    def _compared(self, layout: Layout) -> BoolArray:
        """Return the mask (R,) of the entries that are compared."""
        prefixes = self.settings.layers
        return layout.trained & layout.mask(prefixes) if prefixes else layout.trained
