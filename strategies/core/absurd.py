"""Which clients report what no honest client could: values out of all proportion to the others'."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strategies.core import BoolArray, FloatArray

LOSS_FACTOR = 100.0
UPDATE_FACTOR = 1000.0
MOMENT_FACTOR = UPDATE_FACTOR**2
"""Moments are products of two gradients: a client whose gradients are 1000 times as large is at the bound."""

_LEAST_CLIENTS = 3


def loss_scale(losses: FloatArray) -> float:
    """Return the worst loss of the median client, the yardstick of `absurd_losses`; 0 of fewer than three clients.

    Parameters
    ----------
    losses : (M, K) float
        Loss vectors, not negative; infinite where a model diverged, which is left out.
    """
    if len(losses) < _LEAST_CLIENTS:
        return 0.0
    return _lower_median(np.where(np.isfinite(losses), losses, 0.0).max(axis=1, initial=0.0))


def absurd_losses(losses: FloatArray, scale: float, factor: float = LOSS_FACTOR) -> BoolArray:
    """Return the mask (M,) of the loss vectors that are out of all proportion to `scale`.

    A vector is absurd if its *best* loss is more than `factor` times the scale: whatever data a client has, some
    model should be as good for it as the worst one is for the others. Its worst loss may be larger, because a model
    can be very wrong on another cluster's data, but not by `factor` squared.

    What a liar claims below that cannot be told from an honest loss. And a client whose honest losses are that much
    larger on every model is taken for absurd: with squared errors, one whose targets are 10 times as large as the
    others' (factor 100).

    Parameters
    ----------
    losses : (M, K) float
        Loss vectors, not negative; infinite where a model diverged.
    scale : float
        Largest `loss_scale` of the run so far: losses that have become small in training must not make an honest
        client with a harder sample absurd. At 0 no vector is.
    """
    if not scale or not losses.size:
        return np.zeros(len(losses), dtype=bool)
    worst = np.where(np.isfinite(losses), losses, 0.0).max(axis=1)
    mask: BoolArray = (losses.min(axis=1) > factor * scale) | (worst > factor**2 * scale)
    return mask


def absurd_updates(vectors: FloatArray, bank: FloatArray, factor: float = UPDATE_FACTOR) -> BoolArray:
    """Return the mask (P,) of the updates whose largest value is out of all proportion.

    The yardstick is the largest value in the median client's update, or in the models themselves where that is more:
    of gradients near zero none is absurd. Of fewer than three updates none is, either.

    Parameters
    ----------
    vectors : (P, R) float
        What the clients returned, finite.
    bank : (K, R) float
        The models that they started from.
    """
    if len(vectors) < _LEAST_CLIENTS:
        return np.zeros(len(vectors), dtype=bool)
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    yardstick = max(_lower_median(largest), float(np.abs(bank).max(initial=0.0)))
    mask: BoolArray = largest > factor * yardstick
    return mask


@dataclass
class MomentScale:
    """The size of the median client's moments, the yardstick of absurd ones.

    It is the largest of the run so far: moments shrink as anchors come near the models of most clients, and the
    honest moments of the others, which do not shrink, must not become absurd by that.
    """

    value: float = 0.0

    def absurd(self, sizes: FloatArray, factor: float) -> BoolArray:
        """Return the mask (M,) of the clients of one exchange whose size is more than `factor` times the yardstick.

        Parameters
        ----------
        sizes : (M,) float
            Each client's largest value, finite; of fewer than three clients none is absurd.
        factor : float
            How many times is too much, at least 1.
        """
        if len(sizes) < _LEAST_CLIENTS:
            return np.zeros(len(sizes), dtype=bool)
        self.value = max(self.value, _lower_median(sizes))
        mask: BoolArray = sizes > factor * self.value
        return mask & (self.value > 0)


def term_size(term: NDArray[np.floating], bases: FloatArray) -> float:
    """Return the size of a client's moment matrices, as far as its products with bases show it.

    Parameters
    ----------
    term : (A, R, k) float
        The products, finite.
    bases : (A, R, k) float
        What was multiplied. The longest column of each anchor's is the unit, so that the sizes of all steps of an
        orthogonal iteration can be compared: only every second one starts from orthonormal columns.
    """
    unit = np.sqrt(np.square(bases).sum(axis=1).max(axis=1, initial=0.0))
    largest = np.abs(term).max(axis=(1, 2), initial=0.0).astype(np.float64)
    return float((largest / np.where(unit > 0, unit, 1.0)).max(initial=0.0))


def _lower_median(values: FloatArray) -> float:
    # Of an even number the lower one: so that two liars of four clients do not set the yardstick.
    return float(np.sort(values)[(len(values) - 1) // 2])
