"""`Tree`: which clusters were split, and what tells their halves apart."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray
from florets.strategies.core.cosine import cosines

ROOT = 0


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
        return self.places.get(key, ROOT)

    def split_at(self, node: int) -> Split | None:
        """Return how a node was split; None where it is a present cluster."""
        found = self.nodes[node]
        return found if isinstance(found, Split) else None

    def model(self, node: int) -> int:
        """Return the model of a node; of a split one, that of its larger half, which has kept it."""
        while (split := self.split_at(node)) is not None:
            node = split.halves[0]
        found = self.nodes[node]
        assert isinstance(found, int)
        return found

    @property
    def clusters(self) -> dict[int, int]:
        """Node of each present cluster, by its model."""
        return {found: node for node, found in enumerate(self.nodes) if isinstance(found, int)}

    def split(
        self, node: int, start: Models, directions: FloatArray, halves: tuple[Iterable[str], Iterable[str]]
    ) -> None:
        """Split a cluster: the first half keeps its model, the second gets the next number.

        Parameters
        ----------
        halves
            Keys of the clients in each; who is in neither has to be placed.
        """
        model = self.nodes[node]
        assert isinstance(model, int)
        first = len(self.nodes)
        numbers = (model, len(self.clusters))
        self.nodes[node] = Split(start, directions.astype(np.float32), (first, first + 1))
        for half, (number, keys) in enumerate(zip(numbers, halves, strict=True)):
            self.nodes.append(number)
            self.places.update(dict.fromkeys(keys, first + half))
