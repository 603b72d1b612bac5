"""Objects as values of keys: what is given in Python in place of a name becomes an import path, or keys."""

import dataclasses
import importlib.util
import inspect
import sys
from typing import Any

from florets.conf.consent import IMPORTING, TRACKER
from florets.conf.problems import ConfigError
from florets.strategies.settings import RunKeys
from florets.task import given


def path_of(key: str, value: Any) -> str:
    """Return the import path of a class, a function or a module that is the value of a key.

    What lies in an importable module is named by it. Everything else is held by `florets.task.given`.

    Raises
    ------
    ConfigError
        If the key takes no object, or not this one.
    """
    if key == "strategy":
        if not isinstance(value, type):
            remedy = "its class, and its settings as keys" if is_strategy(value) else "a name, a class or an instance"
            raise ConfigError([f"strategy: a {type(value).__name__} is not a value here; give {remedy}."])
        function = value
    elif key in IMPORTING and key != TRACKER:
        function = _function(key, value)
    else:
        raise ConfigError(
            [f"{key}: a {type(value).__name__} is no value of a key; give a string, a number, a list or a mapping."]
        )
    if _is_importable(function):
        return f"{function.__module__}:{function.__qualname__}"
    try:
        return given.hold(function, str(getattr(value, "__name__", type(value).__name__)))
    except ValueError as error:
        raise ConfigError([f"{key}: {value!r} {error}."]) from error


def is_strategy(value: Any) -> bool:
    """Return whether a value is an instance of a strategy, ours or anybody's."""
    settings = getattr(type(value), "Settings", None)
    return isinstance(settings, type) and isinstance(getattr(value, "settings", None), settings)


def strategy_keys(strategy: Any) -> dict[str, Any]:
    """Return the keys that say what an instance of a strategy says, those of its values that are not the default.

    Raises
    ------
    ConfigError
        If it was given something that no key says.
    """
    from florets.strategies.base.averaging import averaging_of

    kind = type(strategy)
    plain = kind()
    keys: dict[str, Any] = {}
    if strategy.averaging != averaging_of(strategy.settings, strategy.run):
        raise ConfigError(
            [f"strategy={kind.__name__}(averaging=...): is not taken over whole; give its name, or keys."]
        )
    for field in dataclasses.fields(RunKeys):
        value = getattr(strategy.run, field.name)
        if value != getattr(plain.run, field.name):
            keys[field.name] = value
    for field in dataclasses.fields(strategy.settings):
        value = getattr(strategy.settings, field.name)
        if value != getattr(plain.settings, field.name):
            keys[f"strategy.{field.name}"] = value
    return keys


def _function(key: str, value: Any) -> Any:
    if key == "task.model":
        # Torch costs seconds, which a name does not.
        from florets.task.models.given_model import model_function

        try:
            return model_function(value)
        except ValueError as error:
            raise ConfigError([f"{key}: {error}."]) from error
    if not callable(value):
        raise ConfigError([f"{key}: a {type(value).__name__} is not a function; give a name or a function."])
    return value


def _is_importable(value: Any) -> bool:
    """Return whether other processes can import a class or function, by its module and name.

    A module that has been imported anew since has another object of that name: the same, edited.
    """
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
