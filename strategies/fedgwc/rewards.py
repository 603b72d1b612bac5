"""FedGWC's Gaussian rewards: how near each client's losses of a round are to all participants' mean."""

import numpy as np

from florets.strategies.core import FloatArray
from florets.strategies.core.outliers import lower_median

CLIP = 100.0
"""Losses count up to so many times the median client's."""

_LARGEST = 1e100
_NEGLIGIBLE = 1e-8


def gaussian_rewards(losses: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the reward of each participant of a round.

    It is the mean over steps s of exp(-(loss_is - mean_s)^2 / (2 var_s)), with the participants' weighted mean and
    variance at that step.

    Parameters
    ----------
    losses : (P, S) float64
        Loss of each participant at each local step, not negative; infinite where a model diverged.
    weights : (P,) float64
        Above 0, such as example counts.

    Returns
    -------
    (P,) float64
        From above 0 to 1; 1 for all where they have equal losses.

    Source: Licciardi et al. 2025 (FedGWC, arXiv 2502.03340), Gaussian rewards, as in the released code
    (davedleo/FedGWC) without its additional draws from the same Gaussian, which its settings switch off.
    Deviation: a loss counts up to 100 times the median client's at that step, so that one client that diverged, or
    lies, does not make all others equal.
    """
    limits = [min(CLIP * lower_median(column), _LARGEST) for column in losses.T]
    held = np.minimum(losses, limits)
    shares = (weights / weights.sum())[:, np.newaxis]
    mean = np.sum(shares * held, axis=0)
    squared = (held - mean) ** 2
    # Of equal losses only rounding errors differ from the mean.
    variance = np.maximum(np.sum(shares * squared, axis=0), (_NEGLIGIBLE * mean) ** 2)
    distances = np.divide(squared, variance, out=np.zeros_like(squared), where=variance > 0)
    rewards: FloatArray = np.exp(-distances / 2).mean(axis=1)
    return rewards
