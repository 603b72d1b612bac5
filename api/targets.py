"""Targets of clients' data in memory: classes or values, on which all clients have to agree."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.api.client_data import Arrays
from florets.conf.problems import ConfigError
from florets.task.data.tables.description import MOST_GUESSED

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
    several: bool = False
    """Each is a row of numbers, of which the run's loss says what they are."""

    def written(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return targets as a client's file holds them: values, labels, or names."""
        if self.regression:
            return y.astype(np.float32)
        return y.astype(np.str_) if self.classes else y.astype(np.int64)


def agree_on_targets(
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
    if regression is None and classes is None:
        refuse_few_fractions({name: [part.y for part in own] for name, own in parts.items()})
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
            raise ConfigError(f"classes={list(names)}: two are the same; name each class once.")
        for name, own in occurring.items():
            if unknown := sum(str(value) not in names for value in own):
                raise ConfigError(
                    f"client {name}: {unknown} of its {len(own)} different targets are none of classes."
                )
    elif all(type(value) is int for value in every) and every == set(range(len(every))):
        names = ()
    else:
        names = tuple(map(str, sorted(every)))
    if wrong := [name for name in names if "${" in name]:
        raise ConfigError(f"clients: the class {wrong[0]!r} holds ${{, which stands for a key; give it another name.")
    if len(every) < 2:
        raise ConfigError("clients: the targets of all clients are of one class; nothing can be learned.")
    return Targets(classes=names)


def _refuse_values(every: Collection[Any], count: int) -> None:
    """Refuse integers that look like values: many different ones, with few samples each or with gaps between them."""
    if not all(type(value) is int for value in every) or len(every) <= _MANY:
        return
    has_gaps = max(every) - min(every) >= len(every)
    if count < _FEW * len(every) or (has_gaps and len(every) > _MANY_WITH_GAPS):
        raise ConfigError(
            f"clients: the targets are {len(every)} different integers in {count} samples, which look like "
            "values: give regression=True, or regression=False where they are classes."
        )


def refuse_few_fractions(targets: Mapping[str, Sequence[NDArray[Any]]]) -> None:
    """Refuse fractions at less than half of the clients where all others have the few integers that classes are."""
    counts = {
        name: sum(int((y != np.floor(y)).sum()) for y in own if y.dtype.kind == "f") for name, own in targets.items()
    }
    valued = [name for name, count in counts.items() if count]
    others = {value for name, own in targets.items() if name not in valued for y in own for value in y.tolist()}
    if valued and 2 * len(valued) < len(targets) and 1 < len(others) <= MOST_GUESSED:
        raise ConfigError(
            [
                f"client {name}: {counts[name]} of its {sum(map(len, targets[name]))} targets have fractions, and "
                f"the other clients' targets are {len(others)} integers; correct them, or give regression=True."
                for name in valued
            ]
        )
