"""Mixtures of models: initial models that must differ, and the shares that count."""

from florets.strategies.base.models import Models
from florets.strategies.core import BoolArray, FloatArray


def refuse_equal(models: Models, algorithm: str) -> None:
    """Raise ValueError where there are several models and all are equal."""
    if models.count > 1 and (models.bank == models.bank[0]).all():
        raise ValueError(f"all {models.count} initial models are equal: {algorithm} can never tell them apart")


def leading(shares: FloatArray) -> BoolArray:
    """Return the mask of those shares (M, K) of models that are at least half of a client's largest.

    In soft groups all clients train every model, and the members of a group are no majority: a rule counts these.
    """
    mask: BoolArray = shares >= shares.max(axis=-1, keepdims=True) / 2
    return mask
