"""`State`: what a strategy remembers from round to round, and its copies."""

import copy
import dataclasses
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from florets.strategies.base.report import Evaluation


@dataclass
class State:
    """All that a strategy remembers: checkpoints save it whole, and a round that is repeated starts from a copy.

    An algorithm adds what it remembers in a subclass. Fields may be plain values, lists, tuples, sets, dicts, arrays,
    `Models`, `ArrayRecord` and dataclasses of these, in any nesting (`base.encoding`).

    Attributes
    ----------
    assignment
        Model index of every client that has one, by client key.
    phase
        Phase of the current round, for the report: "clustering", "stable", "training" or the algorithm's own.
    evaluations
        Results of the last test evaluation, by client key; empty after a round without one.
    confusions
        Counts of the same tests by model, see `RoundReport.confusions`.
    train_loss
        Mean training loss of the last round, weighted by examples.
    kept
        What a personal method keeps for each client within the groups; None where the run has none.
    """

    assignment: dict[str, int] = field(default_factory=dict)
    phase: str = "training"
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    confusions: dict[int, list[int]] = field(default_factory=dict)
    train_loss: float | None = None
    kept: Any = None


T = TypeVar("T")

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))


def snapshot(value: T) -> T:
    """Return what `copy.deepcopy` does, sooner where a state holds something of each of many clients.

    One object in two places becomes two copies, as in a checkpoint, which holds no cycles; a class's own rules for
    its copies are obeyed.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {key: item if type(item) in _PLAIN else snapshot(item) for key, item in value.items()}  # type: ignore[attr-defined,return-value]  # it is a dict
    if kind is list:
        return [item if type(item) in _PLAIN else snapshot(item) for item in value]  # type: ignore[attr-defined,return-value]  # it is a list
    if kind is set:
        # What can be in a set is not changed.
        return value.copy()  # type: ignore[attr-defined,no-any-return]  # it is a set
    if kind is np.ndarray and value.dtype.kind in "biuf":  # type: ignore[attr-defined]  # it is an array
        # In the order in memory that it has: sums depend on it.
        return value.copy(order="K")  # type: ignore[attr-defined,no-any-return]  # it is an array
    if dataclasses.is_dataclass(kind) and _copied_by_fields(kind):
        new = copy.copy(value)
        for name, item in vars(value).items():
            object.__setattr__(new, name, snapshot(item))
        return new
    return copy.deepcopy(value)


@lru_cache(maxsize=256)
def _copied_by_fields(kind: type) -> bool:
    """Say whether a class leaves its copies to Python, so that a copy has the attributes' copies and nothing else."""
    left_alone = ("__reduce_ex__", "__reduce__", "__getstate__")
    if any(getattr(kind, name) is not getattr(object, name) for name in left_alone):
        return False
    has_own = hasattr(kind, "__deepcopy__") or hasattr(kind, "__copy__")
    return not has_own and not any(vars(base).get("__slots__") for base in kind.__mro__)
