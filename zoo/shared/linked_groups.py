"""Groups frozen once, by a tree of the clients' distances, which newcomers extend."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from florets import Round, Settings, setting
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.shared.frozen_groups import GroupedOnce, OnceState
from florets.zoo.shared.agglomerative import group_below, group_by_largest_gap


@dataclass(frozen=True)
class LinkedSettings(Settings):
    """Keys of an algorithm that groups clients once, by agglomerative clustering.

    `least_ratio` is a measurement, 3 seeds each. Of groups by labels or rotations (digits, MNIST, CIFAR-10) the
    largest gap's two distances have a ratio of 1.6 to 5.0 (PACFL's sums of angles) and 1.4 to 4.3 (FedClust); of
    clients of one distribution, or with Dirichlet labels of 0.3 or 1, of 1.0 to 1.1, which would be parted into 2
    to 59 groups. PACFL has 1.1 to 1.4 with Dirichlet 0.1, where clients stay alone in 2 of 3 seeds.
    """

    threshold: float | None = setting(
        None,
        "clusters nearer than this are merged, in the distance's unit; null: the tree is cut at its largest gap",
        least=0,
    )
    least_ratio: float = setting(
        1.25,
        "the largest gap counts where the distance above it is at least so many times the one under it; else all "
        "clients are one group. 1: always",
        least=1,
    )

    linkage: ClassVar[str]
    """SciPy's name for the distance of merged clusters."""
    compares = "clients"
    one_model: ClassVar[bool] = True
    """The tree says how many models there are; `k` is not used."""


@dataclass
class LinkedGroups(OnceState):
    """What is remembered of the groups: how every client described itself, and where the tree was cut."""

    descriptions: dict[str, Any] = field(default_factory=dict)
    # Distance at which the tree of the first round was cut, None before it.
    threshold: float | None = None
    # The model that every group starts from.
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
        state, settings = self.state, self.settings
        models = r.models if state.frozen else r.models.replaced(r.models.bank[:1])
        start = state.reference = state.reference or models
        state.descriptions.update(replies.ok)
        keys = sorted(state.descriptions)
        distances = self.distances([state.descriptions[key] for key in keys])
        r.note_vectors("distances", keys, distances)
        threshold = settings.threshold if state.threshold is None else state.threshold
        if threshold is None:
            grouping = group_by_largest_gap(distances, settings.linkage, settings.least_ratio)
        else:
            grouping = group_below(distances, threshold, settings.linkage)
        state.threshold = grouping.threshold
        before = np.array([self.assignment.get(key, -1) for key in keys], dtype=np.int64)
        placed = extended(grouping.clusters, before)
        self.assignment.update(zip(keys, placed.tolist(), strict=True))
        started = np.repeat(start.bank, int(placed.max()) + 1 - models.count, axis=0)
        return models.replaced(np.concatenate([models.bank, started])) if len(started) else models


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
