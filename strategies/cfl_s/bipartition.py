"""CFL-S's test of a cluster, and its bipartition by cosine similarity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.agglomerative import group_into
from florets.strategies.core.cosine import cosines
from florets.strategies.core.outliers import lower_median

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

        Parameters
        ----------
        eps_1, eps_2
            Bounds of the mean update's norm from above and of a client's from below.
        scale
            Largest median norm of the run so far: then `eps_1` is in units of the median client's norm, `eps_2` of
            the scale, and the client is the median one. None: both are absolute, and the client is the one with the
            largest norm.

        Source: Sattler et al. 2021 (arXiv 1910.01991), the two stopping criteria.
        Deviation: with a scale. Absolute norms hold for one network, learning rate and number of clients; with Adam
        they are always or never met. The median client's norm cannot be set by one that lies.
        """
        if scale is None:
            return self.mean < eps_1 and self.largest > eps_2
        return self.mean < eps_1 * self.median and self.median > eps_2 * scale


@dataclass(frozen=True)
class Halves:
    """A cluster in two groups.

    Attributes
    ----------
    groups
        0 and 1, (M,); group 0 is that of the first client.
    across
        Largest cosine similarity between the groups.
    within
        Mean cosine similarity of two clients of one group.
    """

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

    Parameters
    ----------
    updates : (M, D) float64
        M at least `LEAST_CLIENTS`, rows in the order of client keys.
    linkage : str
        ``"single"`` merges the two groups with the most similar pair of clients until two groups are left, which
        makes the largest similarity between these as small as it can be. ``"complete"`` merges by the least similar
        pair.

    Source: Sattler et al. 2021, optimal bipartitioning algorithm (single linkage); the released code takes complete.
    """
    similarity = cosines(updates)
    groups = group_into(1.0 - similarity, 2, linkage).clusters
    same = np.equal.outer(groups, groups)
    pairs = np.triu(np.ones_like(same), 1)
    return Halves(groups, float(similarity[~same].max()), float(similarity[same & pairs].mean()))
