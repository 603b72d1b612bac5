"""Keys of a configuration, declared as fields of dataclasses: type, default, help and range; the check of values."""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

type_hints = cache(get_type_hints)
"""As `typing.get_type_hints`, which evaluates every annotation anew."""


def setting(
    default: T,
    text: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    note: str = "",
    cap: str = "",
    needs: str = "",
) -> T:
    """Declare a key with its default, its help text and its range, which applies to numbers alone.

    Parameters
    ----------
    least, most
        Smallest and largest value.
    above, below
        Bounds that the value must not reach.
    note
        What the error adds to the rule, e.g. "null leaves nobody out".
    cap
        Of a key that a node caps: the cap's key in the node config, see `florets.task.node_config`.
    needs
        What this key, or the keys of this group, have no effect without: ``task.num_clusters``,
        ``train.schedule=exponential``, ``num_rounds>1``.
    """
    bounds = {"least": least, "above": above, "most": most, "below": below, "note": note, "cap": cap, "needs": needs}
    metadata = {"help": text, **{name: value for name, value in bounds.items() if value not in (None, "")}}
    if isinstance(default, list | dict):
        # The copy keeps two configurations from sharing one mutable default.
        field: Any = dataclasses.field(default_factory=default.copy, hash=False, metadata=metadata)
    else:
        field = dataclasses.field(default=default, metadata=metadata)
    declared: T = field
    return declared


_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    NoneType: "null",
}


class Mismatch(Exception):
    """A value is not of the type asked for."""


def convert(value: Any, kind: Any, names: tuple[type, ...] = (int,)) -> Any:
    """Return `value` as the annotated type `kind`, or raise `Mismatch`: only what loses nothing is converted.

    In a list of names, numbers of the types `names` stand for their digits.
    """
    if get_origin(kind) in (Union, UnionType):
        for option in get_args(kind):
            try:
                return convert(value, option, names)
            except Mismatch:
                continue
        raise Mismatch
    if get_origin(kind) is Literal:
        # Hydra and YAML read the word as the number.
        value = "inf" if value == math.inf else value
        if isinstance(value, str):
            # `AdamW` is adamw: names of classes are copied as their libraries write them.
            for word in (value, value.lower()):
                if word in get_args(kind):
                    return word
        raise Mismatch
    if get_origin(kind) is list:
        if isinstance(value, str) and not value:
            raise Mismatch
        items = value if isinstance(value, list | tuple) else [value]
        # Names may be numbers, as those of the layers of a Sequential are, and Hydra reads them as such.
        texts = [str(item) if type(item) in names and get_args(kind) == (str,) else item for item in items]
        return [convert(item, get_args(kind)[0]) for item in texts]
    if get_origin(kind) is dict:
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            inner = get_args(kind)[1]
            texts = [str(one) if type(one) in names and inner is str else one for one in value.values()]
            return {name: convert(one, inner, names) for name, one in zip(value, texts, strict=True)}
        raise Mismatch
    if kind is Any:
        return value
    if isinstance(value, bool) and kind is not bool:
        raise Mismatch
    if kind is float and isinstance(value, Real):
        value = float(value)
    elif kind is int and isinstance(value, Integral):
        value = int(value)
    if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
        raise Mismatch
    return value


def describe(kind: Any) -> str:
    """Return an annotated type in words: `int | Literal["auto"]` is "an integer or auto"."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(describe(option) for option in get_args(kind))
    if get_origin(kind) is Literal:
        options = get_args(kind)
        return str(options[0]) if len(options) == 1 else f"one of {', '.join(options)}"
    if get_origin(kind) is list:
        return "a list of integers" if get_args(kind) == (int,) else "a list of strings"
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        return "a mapping of names to values" if inner is Any else f"a mapping of each name to {describe(inner)}"
    return _WORDS[kind]


def as_declared(values: T) -> tuple[T, list[str]]:
    """Return a dataclass with its values as their declared types, and one line for each that is of no such type."""
    hints = type_hints(type(values))  # type: ignore[arg-type]  # mypy does not take dataclass types as hashable
    converted, problems = {}, []
    for field in dataclasses.fields(values):  # type: ignore[arg-type]  # mypy does not take T as a dataclass
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value) and field.metadata:
            converted[field.name], nested = as_declared(value)
            problems += [f"{field.name}.{line}" for line in nested]
            continue
        try:
            words = describe(hints[field.name])
            found = convert(value, hints[field.name])
        except Mismatch:
            problems.append(f"{field.name}={value!r}: must be {words}.")
        except (KeyError, TypeError):
            continue
        else:
            if type(found) is not type(value) or found != value:
                converted[field.name] = found
    return (dataclasses.replace(values, **converted) if converted else values), problems  # type: ignore[type-var]


def from_plain(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    """Return a dataclass of values as JSON or TOML has them, as their declared types; ValueError for any other."""
    hints: dict[str, Any] = type_hints(cls)  # type: ignore[arg-type]  # as above
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # as above
    found, problems = {}, []
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{prefix}{name}: there is no such key; there are {', '.join(known)}.")
        try:
            # A cell may be -9.5.
            found[name] = convert(value, hints[name], (int, float))
        except Mismatch:
            problems.append(f"{prefix}{name}={value!r:.80}: must be {describe(hints[name])}.")
    if problems:
        raise ValueError(" ".join(problems))
    return cls(**found)


def range_problems(values: Any, prefix: str = "") -> list[str]:
    """Return one line for each number of a dataclass, or of nested ones, that lies outside the range of its key."""
    problems = []
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if dataclasses.is_dataclass(value) and field.metadata:
            problems += range_problems(value, f"{prefix}{field.name}.")
        elif rule := _broken(value, field.metadata):
            problems.append(f"{prefix}{field.name}={value}: {rule}.")
    return problems


_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("greater than", operator.gt),
    "most": ("at most", operator.le),
    "below": ("less than", operator.lt),
}


def _broken(value: Any, bounds: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, or an empty string; only numbers have a range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    given = [(*_BOUNDS[name], bounds[name]) for name in _BOUNDS if name in bounds]
    # Not math.isfinite: an integer may be too large for it.
    finite = -math.inf < value < math.inf
    if not given or (finite and all(holds(value, bound) for _, holds, bound in given)):
        return ""
    rule = " and ".join(f"{words} {bound}" for words, _, bound in given)
    extra = "" if finite else ", and a finite number"
    return f"must be {rule}{extra}" + (f"; {bounds['note']}" if "note" in bounds else "")
