"""Groups frozen once, by a tree of the clients' distances, which newcomers extend."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from florets import Experiment, Round, Settings, setting
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.shared.frozen_groups import GroupedOnce, OnceState
from florets.zoo.shared.agglomerative import Grouping, group_below, group_by_largest_gap, group_into


@dataclass(frozen=True)
class LinkedSettings(Settings):
    """Keys of an algorithm that groups clients once, by agglomerative clustering.

    `least_ratio` is a measurement, 3 seeds each. Of groups by labels or rotations (digits, MNIST, CIFAR-10) the
    largest gap's two distances have a ratio of 1.6 to 5.0 (PACFL's sums of angles) and 1.4 to 4.3 (FedClust); of
    clients of one distribution, or with Dirichlet labels of 0.3 or 1, of 1.0 to 1.1, which would be parted into 2
    to 59 groups. PACFL has 1.1 to 1.4 with Dirichlet 0.1, where clients stay alone in 2 of 3 seeds.
    """

    cut: Literal["largest_gap", "threshold", "k"] = setting(
        "largest_gap", "where the tree is cut: at its largest gap, at strategy.threshold, or into k clusters"
    )
    threshold: float | None = setting(
        None,
        "clusters nearer than this are merged (cut=threshold); its unit is the distance's",
        least=0,
        needs="strategy.cut=threshold",
    )

    least_ratio: float = setting(
        1.25,
        "the largest gap counts where the distance above it is at least so many times the one under it; else all "
        "clients are one group. 1: always",
        least=1,
        needs="strategy.cut=largest_gap",
    )

    linkage: ClassVar[str]
    """SciPy's name for the distance of merged clusters."""
    compares = "clients"
    one_model: ClassVar[bool] = True
    """The tree says how many models there are; `k` is used with cut=k alone."""

    def conflicts(self) -> list[str]:
        """Refuse a threshold that is missing."""
        if self.cut == "threshold" and self.threshold is None:
            return ["strategy.cut=threshold: needs strategy.threshold; add it, or use strategy.cut=largest_gap."]
        return []

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a K that cannot be."""
        return problems_of_k(run, "strategy.cut=k", "largest_gap") if self.cut == "k" else []


def problems_of_k(run: Experiment, setting: str, otherwise: str) -> list[str]:
    """Return what is wrong with K where a setting, `key=value`, asks for it; `otherwise` is a value that does not."""
    if run.k == "auto":
        name = setting.partition("=")[0]
        return [f"k=auto: {setting} needs a number; give an integer, or use {name}={otherwise}."]
    # Of nodes with data of their own the number of clients is not known before.
    if run.k < 1 or (run.num_clients >= 1 and run.k > run.num_clients):
        return [f"k={run.k}: {setting} needs a number of clusters from 1 to num_clients={run.num_clients}."]
    return []


def extended(clusters: IntArray, previous: IntArray) -> IntArray:
    """Return every client's model (M,), where some have one (`previous`, else -1) and all have been clustered anew.

    Who has a model keeps it. Another client takes the model that most clients of its cluster have, the lowest number
    among equals; where none has one, the cluster's clients share a new model, numbered on in order of first
    appearance.
    """
    models = previous.copy()
    following = int(previous.max(initial=-1)) + 1
    for cluster in dict.fromkeys(clusters.tolist()):
        members = clusters == cluster
        known = previous[members & (previous >= 0)]
        if len(known) == 0:
            models[members] = following
            following += 1
        else:
            models[members & (previous < 0)] = int(np.bincount(known).argmax())
    return models


@dataclass
class LinkedGroups(OnceState):
    """What is remembered of the groups: how every client described itself, and where the tree was cut.

    Attributes
    ----------
    descriptions
        By client key; a reply is checked before it is kept.
    threshold
        Distance at which the tree of the first round was cut, None before it.
    reference
        The model that every group starts from.
    """

    descriptions: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    reference: Models | None = None


T = TypeVar("T", bound=LinkedSettings)


class LinkedClusters(GroupedOnce[T, LinkedGroups]):
    """Clients grouped once by a tree of their distances; a subclass says how they are described and compared."""

    State = LinkedGroups

    @abstractmethod
    def distances(self, clients: Sequence[Any]) -> FloatArray:
        """Return the clients' distances (M, M)."""

    def admit(self, replies: Replies[Any], r: Round) -> Models:
        """Find the groups, or place newcomers; return the models, one for each group.

        For newcomers the tree of all clients is made anew and cut at the same distance, and a newcomer joins
        the model that most of its cluster have. A cluster of only newcomers starts a separate model. Nobody who
        has a model changes it.
        """
        state = self.state
        models = r.models if state.frozen else r.models.replaced(r.models.bank[:1])
        start = state.reference = state.reference or models
        state.descriptions.update(replies.ok)
        keys = sorted(state.descriptions)
        distances = self.distances([state.descriptions[key] for key in keys])
        r.note_vectors("distances", keys, distances)
        grouping = self._group(distances)
        before = np.array([self.assignment.get(key, -1) for key in keys], dtype=np.int64)
        placed = extended(grouping.clusters, before)
        state.threshold = grouping.threshold
        self.assignment.update({key: int(model) for key, model in zip(keys, placed, strict=True)})
        started = np.repeat(start.bank, int(placed.max()) + 1 - models.count, axis=0)
        return models.replaced(np.concatenate([models.bank, started])) if len(started) else models

    def _group(self, distances: FloatArray) -> Grouping:
        settings, linkage = self.settings, self.settings.linkage
        threshold = settings.threshold if self.state.threshold is None else self.state.threshold
        if threshold is not None:
            return group_below(distances, threshold, linkage)
        if settings.cut == "k":
            return group_into(distances, int(self.k or 1), linkage)
        return group_by_largest_gap(distances, linkage, settings.least_ratio)
