"""Keyword arguments of the public functions as the command's `key=value` texts: one way to check both."""

import dataclasses
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from florets.api import Typed
from florets.conf.consent import IMPORTING, TRACKER
from florets.conf.overrides import quote
from florets.conf.problems import ConfigError
from florets.conf.schema import OPTION_KEYS
from florets.reports.console import say
from florets.task import given
from florets.task.edited_modules import note, reload_edited
from florets.task.imported import import_from

_MOST_VALUES = 1000
"""Entries of a list or an array that is the value of a key."""
_SHORT = {name: f"task.{name}" for name in ("data", "partition", "model", "loss")}


def overrides_of(experiment: str | Typed | None, keys: Mapping[str, Any]) -> list[str]:
    """Return the texts that say on the command line what the keyword arguments say.

    A group is a mapping, ``train={"learning_rate": 0.1}``, or a dotted key; `model`, `loss`, `data` and `partition`
    are short for ``task.model`` and so on. Edited modules of the caller's are imported anew when they are next used.
    """
    if isinstance(experiment, Typed):
        return list(experiment)
    if experiment is not None and "experiment" in keys:
        raise ConfigError(f"experiment={keys['experiment']}: is also given as {experiment!r}; keep one.")
    _use_edits()
    texts = [] if experiment is None else [f"experiment={experiment}"]
    return _noted(texts + [f"{key}={_written(key, value)}" for key, value in _flat(keys)])


def choices_of(experiment: str | Iterable[str] | None, keys: Mapping[str, Any]) -> list[str]:
    """Return the texts of a sweep: a list, tuple, range, array or Series of values is tried value by value."""
    if isinstance(experiment, Typed):
        return overrides_of(experiment, {})
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
        raise ConfigError(f"{key}: is an empty {type(value).__name__}; give at least one value.")
    return list(value)


def _listed(key: str, value: Any) -> Any:
    """Return an array, tensor or Series of one axis as a list; other values as they are."""
    shape = None if isinstance(value, type) else getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not shape or not hasattr(value, "tolist"):
        return value
    if len(shape) > 1 or shape[0] > _MOST_VALUES:
        raise ConfigError(
            f"{key}: a {type(value).__name__} of shape {tuple(shape)} is no value of a key; clients' data are "
            "given as clients=."
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
            raise ConfigError(f"{key}: a {type(value).__name__} of {len(value)} entries is no value of a key.")
        return "[" + ",".join(_written(key, one) for one in value) + "]"
    if isinstance(value, Path):
        value = str(value)
    # NumPy's numbers are written as Python's.
    item = None if isinstance(value, type) else getattr(value, "item", None)
    plain = item() if callable(item) else value
    return quote(plain if isinstance(plain, str | bool | int | float) else path_of(key, value))


def path_of(key: str, value: Any) -> str:
    """Return the import path of a class, a function or a module that is the value of a key."""
    if key == "strategy":
        if not isinstance(value, type):
            remedy = "its class, and its settings as keys" if is_strategy(value) else "a name, a class or an instance"
            raise ConfigError(f"strategy: a {type(value).__name__} is not a value here; give {remedy}.")
        function = value
    elif key in IMPORTING and key != TRACKER:
        function = _function(key, value)
    else:
        raise ConfigError(
            f"{key}: a {type(value).__name__} is no value of a key; give a string, a number, a list or a mapping."
        )
    if _is_importable(function):
        return f"{function.__module__}:{function.__qualname__}"
    try:
        return given.hold(function, str(getattr(value, "__name__", type(value).__name__)))
    except ValueError as error:
        raise ConfigError(f"{key}: {value!r} {error}.") from None


def is_strategy(value: Any) -> bool:
    """Return whether a value is an instance of a strategy, ours or anybody's."""
    settings = getattr(type(value), "Settings", None)
    return isinstance(settings, type) and isinstance(getattr(value, "settings", None), settings)


def strategy_keys(strategy: Any) -> dict[str, Any]:
    """Return the keys for the values of an instance of a strategy that are not the default."""
    from florets.strategies.base.models import averaging_of

    kind = type(strategy)
    plain = kind()
    if strategy.averaging != averaging_of(strategy.settings, strategy.run):
        raise ConfigError(
            f"strategy={kind.__name__}(averaging=...): is not taken over whole; give its name, or keys."
        )
    return {
        f"{prefix}{field.name}": getattr(own, field.name)
        for prefix, own, default in (("", strategy.run, plain.run), ("strategy.", strategy.settings, plain.settings))
        for field in dataclasses.fields(own)
        if getattr(own, field.name) != getattr(default, field.name)
    }


def _function(key: str, value: Any) -> Any:
    if key == "task.model":
        # Torch costs seconds, which a name does not.
        from florets.task.models.given_model import model_function

        try:
            return model_function(value)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}.") from None
    if not callable(value):
        raise ConfigError(f"{key}: a {type(value).__name__} is not a function; give a name or a function.")
    return value


def _is_importable(value: Any) -> bool:
    """Return whether other processes can import a class or function, by its module and name."""
    if not (isinstance(value, type) or inspect.isfunction(value)) or not value.__qualname__.isidentifier():
        return False
    home = str(value.__module__)
    module = sys.modules.get(home)
    if home == "__main__" or not all(part.isidentifier() for part in home.split(".")):
        return False
    try:
        spec = getattr(module, "__spec__", None) or importlib.util.find_spec(home)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin in (None, "built-in"):
        return False
    there = getattr(module, value.__qualname__, None)
    return there is value or module is None or getattr(there, "__qualname__", None) == value.__qualname__
