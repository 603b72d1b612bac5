"""Keyword arguments of the public functions as the command's `key=value` texts: one way to check both."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.run_config import quote
from florets.conf.schema import OPTION_KEYS


def overrides_of(experiment: str | None, keys: Mapping[str, Any]) -> list[str]:
    """Return the texts that say on the command line what the keyword arguments say.

    Parameters
    ----------
    experiment
        Name of the preset; None: the command's default.
    keys
        The keys of the command. A group is a mapping, ``train={"learning_rate": 0.1}``, or a dotted key,
        ``**{"train.learning_rate": 0.1}``; a strategy with settings is ``strategy={"name": "clove", "restarts": 3}``.

    Raises
    ------
    ConfigError
        If the experiment is given twice, or a value has no form on the command line.
    """
    if experiment is not None and "experiment" in keys:
        raise ConfigError([f"experiment={keys['experiment']}: is also given as {experiment!r}; keep one."])
    texts = [] if experiment is None else [f"experiment={experiment}"]
    return texts + [f"{key}={_written(key, value)}" for key, value in _flat(keys)]


def choices_of(experiment: str | Iterable[str] | None, keys: Mapping[str, Any]) -> list[str]:
    """Return the texts of a sweep: a list, tuple or range of values is tried value by value; see `overrides_of`.

    One value that is a list is a list in a list: ``task={"head_layers": [["fc"]]}``.
    """
    given: dict[str, Any] = dict(keys) if experiment is None else {"experiment": experiment, **keys}
    return [f"{key}={','.join(_written(key, one) for one in _choices(value))}" for key, value in _flat(given)]


def _choices(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | range) else [value]


def _flat(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in keys.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in OPTION_KEYS:
            if key == "strategy" and "name" in value:
                yield key, value["name"]
                value = {name: one for name, one in value.items() if name != "name"}
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _written(key: str, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{quote(str(name))}:{_written(key, one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_written(key, one) for one in value) + "]"
    if isinstance(value, Path):
        value = str(value)
    # NumPy's numbers are written as Python's.
    item = getattr(value, "item", None)
    plain = item() if callable(item) else value
    if not isinstance(plain, str | bool | int | float):
        raise ConfigError(
            [f"{key}: a {type(value).__name__} is no value of a key; give a string, a number, a list or a mapping."]
        )
    return quote(plain)
