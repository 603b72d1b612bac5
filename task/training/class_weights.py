"""Weights of samples in training by how frequent their class is."""

from typing import Literal

import torch
from torch import Tensor

ClassWeights = Literal["balanced", "root"]
"""One over the class's count, or over its square root."""


def class_weights(labels: Tensor, how: ClassWeights) -> Tensor:
    """Return the weight of each sample, of mean 1: the rarer its class among these samples, the larger.

    Parameters
    ----------
    labels
        int64 (n,), at least one.
    how
        ``balanced``: all classes that are there have the same sum of weights, whatever their counts; ``root``: their
        sums are as the square roots of the counts.

    Returns
    -------
    Tensor
        float32 (n,), on the labels' device.

    Raises
    ------
    ValueError
        If `how` is neither.
    """
    counts = torch.bincount(labels).to(torch.float32)[labels]
    if how == "balanced":
        weights = counts.reciprocal()
    elif how == "root":
        weights = counts.rsqrt()
    else:
        raise ValueError(f"class_weights={how!r} must be 'balanced' or 'root'.")
    return weights / weights.mean()
