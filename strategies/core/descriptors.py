"""Descriptors of clients on a common scale, and the nearest of several centroids."""

from dataclasses import dataclass

import numpy as np

from florets.strategies.core import FloatArray

UNLABELLED = 2
"""Rows of a descriptor that need no labels: mean and spread of all samples. They come first."""


@dataclass(frozen=True)
class RowScale:
    """Minimum and range of each row of the descriptors that it was made from.

    Attributes
    ----------
    low, width
        (B,) over all clients and all entries of a row.
    """

    low: FloatArray
    width: FloatArray

    @classmethod
    def of(cls, descriptors: FloatArray) -> "RowScale":
        """Return the scale of descriptors (M, B, l)."""
        low, high = descriptors.min(axis=(0, 2)), descriptors.max(axis=(0, 2))
        return cls(low, high - low)

    def apply(self, descriptors: FloatArray) -> FloatArray:
        """Return descriptors (..., B, l) with row b as (value - low_b) / width_b; 0 where the row had one value.

        Source: Fenoglio et al. 2025 (FLUX): every statistic is brought to [0, 1] on its own, so that all weigh alike.
        """
        moved = descriptors - self.low[:, np.newaxis]
        same = self.width[:, np.newaxis] == 0
        scaled: FloatArray = np.where(same, 0.0, moved / np.where(same, 1.0, self.width[:, np.newaxis]))
        return scaled


def nearest(descriptor: FloatArray, centroids: FloatArray, labelled: bool = True) -> int:
    """Return the index of the nearest centroid in Euclidean distance, the lowest among equals.

    Parameters
    ----------
    descriptor : (B, l) float64
        Scaled.
    centroids : (C, B, l) float64
        Mean scaled descriptor of each cluster.
    labelled : bool
        False: only the rows that need no labels are compared.
    """
    rows = slice(None) if labelled else slice(UNLABELLED)
    gaps = centroids[:, rows] - descriptor[np.newaxis, rows]
    return int(np.argmin((gaps**2).sum(axis=(1, 2))))
