"""Class shares that a run of FedRC ended with, in its folder."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.placement import ClassShares

NAME = "class_shares"
_TOLERANCE = 1e-6


def unpack_class_shares(
    arrays: Mapping[str, NDArray[Any]], num_models: int, classes: int
) -> NDArray[np.float64] | None:
    """Return the share of each class in each model's part, (K, C), None where the file has none.

    Nothing in the file is trusted.

    Raises
    ------
    ValueError
        If they are not of these sizes, above 0 and with sum 1 for each model.
    """
    if NAME not in arrays:
        return None
    shares = arrays[NAME].astype(np.float64)
    if shares.shape != (num_models, classes):
        raise ValueError(f"class shares of shape {shares.shape} do not fit {num_models} models and {classes} classes")
    if not ((shares > 0).all() and (np.abs(shares.sum(axis=1) - 1) <= _TOLERANCE).all()):
        raise ValueError("the class shares are not above 0 with sum 1 for each model")
    return shares


def pack_class_shares(found: ClassShares) -> dict[str, NDArray[Any]]:
    """Return the arrays of the file."""
    return {NAME: found.shares}
