"""Keyword arguments of the public functions as the command's `key=value` texts: one way to check both."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from florets.api.objects import is_strategy, path_of, strategy_keys
from florets.conf.overrides import quote
from florets.conf.problems import ConfigError
from florets.conf.schema import OPTION_KEYS
from florets.reports.console import say
from florets.task.edited_modules import note, reload_edited
from florets.task.imported import import_from

_MOST_VALUES = 1000
"""Entries of a list or an array that is the value of a key."""
_SHORT = {name: f"task.{name}" for name in ("data", "partition", "model")}


def overrides_of(experiment: str | None, keys: Mapping[str, Any]) -> list[str]:
    """Return the texts that say on the command line what the keyword arguments say.

    Modules of the caller's that were edited since they were imported are imported anew when they are next used.

    Parameters
    ----------
    experiment
        Name of the preset; None: the command's default.
    keys
        The keys of the command. A group is a mapping, ``train={"learning_rate": 0.1}``, or a dotted key,
        ``**{"train.learning_rate": 0.1}``; a strategy with settings is ``strategy={"name": "clove", "restarts": 3}``,
        or an instance. `model`, `data` and `partition` are short for ``task.model`` and so on; their values, and the
        strategy, may be classes and functions.

    Raises
    ------
    ConfigError
        If the experiment is given twice, or a value has no form on the command line.
    """
    if experiment is not None and "experiment" in keys:
        raise ConfigError([f"experiment={keys['experiment']}: is also given as {experiment!r}; keep one."])
    _use_edits()
    texts = [] if experiment is None else [f"experiment={experiment}"]
    return _noted(texts + [f"{key}={_written(key, value)}" for key, value in _flat(keys)])


def choices_of(experiment: str | Iterable[str] | None, keys: Mapping[str, Any]) -> list[str]:
    """Return the texts of a sweep: a list, tuple, range, array or Series of values is tried value by value.

    See `overrides_of`.

    One value that is a list is a list in a list: ``task={"head_layers": [["fc"]]}``.
    """
    _use_edits()
    given: dict[str, Any] = dict(keys) if experiment is None else {"experiment": experiment, **keys}
    return _noted(
        [f"{key}={','.join(_written(key, one) for one in _choices(key, value))}" for key, value in _flat(given)]
    )


def _use_edits() -> None:
    # Where modules that are named may lie.
    import_from(Path.cwd())
    if edited := reload_edited():
        say(f"florets: reloaded edited modules: {', '.join(edited)}", sys.stderr)


def _noted(texts: list[str]) -> list[str]:
    # Before anything of them is imported: what is edited after that has changed.
    note(value.strip("'") for text in texts for value in text.partition("=")[2].split(",") if ":" in value)
    return texts


def _choices(key: str, value: Any) -> list[Any]:
    value = _listed(key, value)
    if not isinstance(value, list | tuple | range):
        return [value]
    if not len(value):
        raise ConfigError([f"{key}: is an empty {type(value).__name__}; give at least one value."])
    return list(value)


def _listed(key: str, value: Any) -> Any:
    """Return an array, tensor or Series of one axis as a list; other values as they are."""
    shape = None if isinstance(value, type) else getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not shape or not hasattr(value, "tolist"):
        return value
    if len(shape) > 1 or shape[0] > _MOST_VALUES:
        raise ConfigError(
            [
                f"{key}: a {type(value).__name__} of shape {tuple(shape)} is no value of a key; clients' data are "
                "given as clients=."
            ]
        )
    return value.tolist()


def _flat(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in keys.items():
        key = f"{prefix}{name}" if prefix else _SHORT.get(name, name)
        if key == "strategy" and is_strategy(value):
            yield key, type(value)
            yield from strategy_keys(value).items()
        elif isinstance(value, Mapping) and key not in OPTION_KEYS:
            if key == "strategy" and "name" in value:
                yield key, value["name"]
                value = {name: one for name, one in value.items() if name != "name"}
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _written(key: str, value: Any) -> str:
    value = _listed(key, value)
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{quote(str(name))}:{_written(key, one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        if len(value) > _MOST_VALUES:
            raise ConfigError([f"{key}: a {type(value).__name__} of {len(value)} entries is no value of a key."])
        return "[" + ",".join(_written(key, one) for one in value) + "]"
    if isinstance(value, Path):
        value = str(value)
    # NumPy's numbers are written as Python's.
    item = None if isinstance(value, type) else getattr(value, "item", None)
    plain = item() if callable(item) else value
    return quote(plain if isinstance(plain, str | bool | int | float) else path_of(key, value))
