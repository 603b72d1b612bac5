"""The targets of all clients: values, or class labels that mean the same everywhere."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.api.client_data import Arrays
from florets.conf.problems import ConfigError

_KINDS = {"b": "truth values", "i": "integers", "u": "integers", "U": "names", "f": "values"}

_MANY, _MANY_WITH_GAPS = 20, 50
"""Different integers above which they may be values."""
_FEW = 5
"""Samples of a class."""


@dataclass(frozen=True)
class Targets:
    """What the targets of all clients are.

    Attributes
    ----------
    classes
        Names of the classes in the order of their labels; empty: labels are integers from 0, without names.
    """

    regression: bool = False
    classes: tuple[str, ...] = ()

    def written(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return targets as a client's file holds them: values, labels, or names."""
        if self.regression:
            return y.astype(np.float32)
        return y.astype(np.str_) if self.classes else y.astype(np.int64)


def agree_on_targets(
    parts: Mapping[str, Sequence[Arrays]], classes: Sequence[Any] | None, regression: bool | None
) -> Targets:
    """Return what the targets of all clients are.

    Parameters
    ----------
    classes
        The classes in the order of their labels; None: those that the clients' data declare, else those that occur.
    regression
        Whether targets are values; None: they are where a client has fractions.

    Raises
    ------
    ConfigError
        If clients have different kinds of targets, a target is none of the classes, all are of one class, or integers
        look like values.
    """
    kinds = {name: {part.y.dtype.kind for part in own} for name, own in parts.items()}
    found = set().union(*kinds.values())
    for kind in "Ub":
        if kind in found and (others := sorted(found - {kind})):
            one, other = (next(name for name, own in kinds.items() if its in own) for its in (kind, others[0]))
            raise ConfigError(
                [
                    f"clients: the targets of {one!r} are {_KINDS[kind]}, and those of {other!r} "
                    f"{_KINDS[others[0]]}; give all clients the same kind."
                ]
            )
    is_chosen = regression is not None
    if regression is None:
        regression = "f" in found and classes is None
    if regression:
        if "U" in found:
            raise ConfigError(
                ["clients: the targets are names, and a regression's are numbers; leave out regression."]
            )
        return Targets(regression=True)
    if "f" in found:
        name = next(name for name, own in kinds.items() if "f" in own)
        raise ConfigError(
            [f"clients: {name}: its targets have fractions and cannot be classes; give labels or names."]
        )
    declared = [part.classes for own in parts.values() for part in own if part.classes]
    if classes is None and declared:
        classes = list(dict.fromkeys(text for names in declared for text in names))
    occurring = {name: set().union(*(set(np.unique(part.y).tolist()) for part in own)) for name, own in parts.items()}
    every = set().union(*occurring.values())
    if classes is None and not is_chosen:
        _refuse_values(every, sum(len(part.y) for own in parts.values() for part in own))
    if classes is not None:
        names = tuple(map(str, classes))
        if len(set(names)) < len(names):
            raise ConfigError([f"classes={list(names)}: two are the same; name each class once."])
        for name, own in occurring.items():
            if unknown := sum(str(value) not in names for value in own):
                raise ConfigError(
                    [f"clients: {name}: {unknown} of its {len(own)} different targets are none of classes."]
                )
    elif all(type(value) is int for value in every) and every == set(range(len(every))):
        names = ()
    else:
        names = tuple(map(str, sorted(every)))
    if wrong := [name for name in names if "${" in name]:
        raise ConfigError(
            [f"clients: the class {wrong[0]!r} holds ${{, which stands for a key; give it another name."]
        )
    if len(every) < 2:
        raise ConfigError(["clients: the targets of all clients are of one class; nothing can be learned."])
    return Targets(classes=names)


def _refuse_values(every: Collection[Any], count: int) -> None:
    """Refuse integers that look like values: many different ones, with few samples each or with gaps between them."""
    if not all(type(value) is int for value in every) or len(every) <= _MANY:
        return
    has_gaps = max(every) - min(every) >= len(every)
    if count < _FEW * len(every) or (has_gaps and len(every) > _MANY_WITH_GAPS):
        raise ConfigError(
            [
                f"clients: the targets are {len(every)} different integers in {count} samples, which look like "
                "values: give regression=True, or regression=False where they are classes."
            ]
        )
