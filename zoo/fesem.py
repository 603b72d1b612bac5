"""FeSEM: after local training each client joins the nearest of K models, which become their clients' means."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from florets import Round, State, Steps, Strategy, Update, setting
from florets.strategies.base.models import Updates
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import cluster
from florets.strategies.settings import MODELS_OF_GROUPS, SharedLayers
from florets.task.randomness import Purpose


@dataclass(frozen=True)
class FeSEMSettings(SharedLayers):
    """After local training each client joins the nearest of K models, which become their clients' means."""

    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of the means, and of k-means: uniform, or by examples (WeCFL)"
    )

    # Distances are of models, not of gradients.
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows = MODELS_OF_GROUPS
    # Models are comparable only where they start from one.
    usual_initial = "same"


@dataclass
class FeSEMState(State):
    """What FeSEM remembers."""

    phase: str = "clustering"
    # How many of the models, from the first, ever had a client; 0 before the first clustering.
    centres: int = 0


class FeSEM(Strategy[FeSEMSettings, FeSEMState]):
    """Multi-centre federated learning by expectation-maximisation on models.

    In round 1 all that are online train one model, and k-means of what they return founds the K models. From then on
    clients train their own; each joins the model that is nearest to what it returned (E-step), and every model is
    then the mean of what its clients returned (M-step). With WeCFL's weights (`weighting=examples`) means and k-means
    are weighted by examples.

    Only the participants of a round are assigned anew. A model that none of them is nearest to stays as it is.

    Source: Long et al. 2023 (FeSEM, arXiv 2005.01026), E- and M-step; Ma et al. (WeCFL, arXiv 2202.06187), weights.
    Deviation: round 1 is everybody's, whatever `fraction_train`: few participants could not found K models, and
    hardly anything mends them later. The released codes group the models by k-means in every round.
    Deviation: trainable parameters alone are compared, without counters and running statistics.
    Deviation: the paper has no newcomers; one takes the model with the lowest loss, because a model that it trained
    from the common start would be far from all centres and nearest to the same one, whoever it is.
    """

    Settings = FeSEMSettings
    State = FeSEMState

    def round(self, r: Round) -> Steps:
        """Let every participant train its model, in round 1 the first one; then E-step and M-step."""
        state = self.state
        if state.centres:
            self.assignment.update(r.ask_lowest(r.newcomers(self.assignment), range(state.centres)))
            updates = yield r.train(self.assignment)
        else:
            if r.models.count > 1:
                r.participants = r.online
            updates = yield r.train({client.key: 0 for client in r.participants})
        keys, rows = [key for key, _ in updates], Updates(updates)
        with r.meter.part("cluster"):
            assigned = self._assign(keys, updates, r)
        if state.centres:
            state.details = {"moved": float(np.sum(assigned != rows.models))}
        state.centres = max(state.centres, int(assigned.max()) + 1)
        self.assignment.update(zip(keys, assigned.tolist(), strict=True))
        return r.averaging.next_bank(r.models, rows, assigned, rows.examples)

    def _assign(self, keys: Sequence[str], updates: Sequence[tuple[str, Update]], r: Round) -> IntArray:
        """Return the model (P,) of each client that returned one."""
        compared, centres = r.models.layout.trained, self.state.centres
        vectors = np.stack([update.vector for _, update in updates])[:, compared]
        r.note_vectors("models", keys, vectors)
        if centres:
            return nearest_centres(vectors, r.models.bank[:centres][:, compared])
        counts = Updates(updates).examples if self.settings.weighting == "examples" else None
        return cluster(vectors, r.models.count, "kmeans", r.random(Purpose.CLUSTERING), counts)


def nearest_centres(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return the centre (C, D) that is nearest to each model (M, D) in Euclidean distance; the first among equals.

    Source: Long et al. 2023 (FeSEM, arXiv 2005.01026), E-step.
    """
    # Differences, not inner products: models of one cluster agree in most of their digits.
    distances = np.stack([np.sum((vectors - centre) ** 2, axis=1) for centre in centres], axis=1)
    nearest: IntArray = np.argmin(distances, axis=1).astype(np.int64)
    return nearest
