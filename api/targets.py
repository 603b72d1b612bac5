"""Targets of clients' data in memory: classes or values, on which all clients have to agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.api.client_data import Arrays, declares_classes
from florets.conf.problems import ConfigError
from florets.reports.console import listed
from florets.task.data.tables.agreed_target import natural_order
from florets.task.data.tables.table_text import class_name

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {"b": "truth values", "i": "integers", "u": "integers", "U": "names", "f": "values"}

_MANY = 20
"""Different integers above which they may be values."""
_FEW = 5
"""Samples of a class."""
_MOST_NAMED = 5


@dataclass(frozen=True)
class Targets:
    """What the targets of all clients are."""

    regression: bool = False
    classes: tuple[str, ...] = ()
    """In the order of their labels; empty: labels are integers from 0, without names."""
    several: bool = False
    """Each is a row of numbers, of which the run's loss says what they are."""

    def written(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return targets as a client's file holds them: values, labels, or names."""
        if self.regression:
            return y.astype(np.float32)
        return y.astype(np.str_) if self.classes else y.astype(np.int64)


def targets_of_arrays(
    parts: Mapping[str, Sequence[Arrays]], classes: Sequence[Any] | None, regression: bool | None
) -> Targets:
    """Return what the targets of all clients are, as far as it is not given; see `florets.Federation`."""
    widths = {part.y.shape[1:]: name for name, own in reversed(list(parts.items())) for part in own}
    if len(widths) > 1:
        (one, first), (other, second) = list(widths.items())[:2]
        raise ConfigError(
            f"clients: the targets of {first!r} have shape {('n', *one)}, and those of {second!r} {('n', *other)}; "
            "give all clients the same form."
        )
    if () not in widths:
        if classes is not None or regression is False:
            raise ConfigError("clients: the targets are rows of several numbers, and no classes; leave classes out.")
        return Targets(regression=True, several=True)
    whose = {part.y.dtype.kind: name for name, own in reversed(list(parts.items())) for part in own}
    for kind in [kind for kind in "Ub" if kind in whose]:
        if others := sorted(whose.keys() - {kind}):
            both = f"{whose[kind]!r} are {_KINDS[kind]}, and those of {whose[others[0]]!r} {_KINDS[others[0]]}"
            raise ConfigError(f"clients: the targets of {both}; give all clients the same kind.")
    is_chosen = regression is not None
    if regression is None:
        regression = "f" in whose and classes is None
    if regression:
        if "U" in whose:
            raise ConfigError("clients: the targets are names, and a regression's are numbers; leave out regression.")
        return Targets(regression=True)
    if "f" in whose:
        raise ConfigError(
            f"client {whose['f']}: its targets have fractions and cannot be classes; give labels or names."
        )
    declared = [text for own in parts.values() for part in own for text in part.classes]
    if classes is None and declared:
        classes = list(dict.fromkeys(declared))
    occurring = {name: set().union(*(set(np.unique(part.y).tolist()) for part in own)) for name, own in parts.items()}
    every = set().union(*occurring.values())
    are_integers = all(type(value) is int for value in every)
    count = sum(len(part.y) for own in parts.values() for part in own)
    if classes is None and not is_chosen and are_integers and len(every) > _MANY and count < _FEW * len(every):
        raise ConfigError(
            f"clients: the targets are {len(every)} different integers in {count} samples, which look like values: "
            "give regression=True, or regression=False where they are classes."
        )
    if classes is not None:
        names = tuple(map(str, classes))
        if len(set(names)) < len(names):
            raise ConfigError(f"classes={list(names)}: two are the same; name each class once.")
        for name, own in occurring.items():
            if unknown := sorted({str(value) for value in own} - set(names), key=natural_order):
                are = "targets {} are" if len(unknown) > 1 else "target {} is"
                which = are.format(listed(unknown, _MOST_NAMED))
                raise ConfigError(f"client {name}: its {which} not among classes.")
    elif are_integers and every == set(range(len(every))):
        names = ()
    else:
        names = tuple(map(str, sorted(every)))
    if len(every) < 2:
        raise ConfigError("clients: the targets of all clients are of one class; nothing can be learned.")
    return Targets(classes=names)


def targets_of_tables(columns: Sequence["pd.Series[Any]"], regression: bool | None) -> Targets:
    """Return what the targets of all clients' frames are, as far as the columns' types or `regression` say it."""
    if regression or not any(map(declares_classes, columns)):
        return Targets(bool(regression))
    names = {class_name(one) for column in columns for one in column.dropna().unique()}
    return Targets(classes=tuple(sorted(names, key=natural_order)))
