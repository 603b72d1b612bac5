"""`FrozenDescriptors`: groups of clients with like features in one model, by which new clients are assigned."""

from dataclasses import dataclass

from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray
from florets.strategies.core.descriptors import RowScale, nearest


@dataclass(frozen=True)
class FrozenDescriptors:
    """The common model, how features are projected, and the groups' centroids. Group g trains model g.

    Attributes
    ----------
    common
        The one model whose features are described.
    seed
        Draws the projection.
    scale
        Brings the rows of descriptors to a common scale.
    centroids
        Mean scaled descriptor of each group, (K, 2 (C + 1), l).
    """

    common: Models
    seed: int
    scale: RowScale
    centroids: FloatArray

    def group_of(self, descriptor: FloatArray, labelled: bool = True) -> int:
        """Return the group of a client with this descriptor (2 (C + 1), l); without labels two rows decide."""
        return nearest(self.scale.apply(descriptor), self.centroids, labelled)
