"""From plain mappings to the schema's dataclasses: every value is held to its declared type."""

import dataclasses
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from florets.conf.problems import did_you_mean
from florets.conf.schema import Chosen, Config
from florets.strategies.registry import DEFAULT, UnknownStrategy, find_strategy, settings_type
from florets.strategies.settings import Settings
from florets.task.keys import Mismatch, as_declared, convert, describe, type_hints


def read_config(values: Mapping[str, Any], problems: list[str]) -> tuple[Config | None, list[str]]:
    """Build a `Config` from nested plain values; what is wrong is appended to `problems`.

    Returned are the configuration, None where there is no such strategy, and the keys whose values are of a wrong
    type: they have the schema's defaults.
    """
    defaulted: list[str] = []
    given = values.get("strategy", {})
    strategy = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = str(strategy.pop("name", DEFAULT))
    settings = read_strategy(name, problems)
    if settings is None:
        return None, defaulted
    rest = {key: value for key, value in values.items() if key != "strategy"}
    read = _read_fields(Config, rest, "", problems, defaulted)
    chosen = settings(**_read_fields(settings, strategy, "strategy.", problems, defaulted))
    return Config(**{**read, "strategy": Chosen(find_strategy(name).id, chosen)}), defaulted


def read_strategy(name: str, problems: list[str]) -> type[Settings] | None:
    """Return the settings of a strategy; where there is none, None, and why is appended to `problems`."""
    try:
        settings = settings_type(name)
    except UnknownStrategy as error:
        hint = "" if ":" in name else did_you_mean(name, error.known)
        problems.append(
            f"strategy={name}: {error}; there are {', '.join(error.known)}, or package.module:Class.{hint}"
        )
        return None
    if ":" in name and (wrong := as_declared(settings())[1]):
        problems += [f"strategy={name}: the default {settings.__name__}.{line}" for line in wrong]
        return None
    return settings


def _read_fields(
    kind: type[Any], values: Mapping[str, Any], prefix: str, problems: list[str], defaulted: list[str]
) -> dict[str, Any]:
    hints = type_hints(kind)  # type: ignore[arg-type]  # see above
    fields = {field.name: field for field in dataclasses.fields(kind)}
    read: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if name not in fields:
            keys = [f"{prefix}{known}" for known in fields]
            problems.append(f"{path}: there is no such key.{did_you_mean(path, keys)}")
        elif dataclasses.is_dataclass(hints[name]):
            if isinstance(value, Mapping):
                read[name] = hints[name](**_read_fields(hints[name], value, f"{path}.", problems, defaulted))
            else:
                defaulted.append(path)
                problems.append(f"{path}={show(value)}: holds several keys; set them as {path}.<key>=<value>.")
        else:
            try:
                read[name] = convert(value, hints[name])
            except Mismatch:
                defaulted.append(path)
                problems.append(
                    f"{path}={show(value)}: must be {describe(hints[name])}."
                    f"{did_you_mean(show(value), words_of(hints[name]))}"
                )
    return read


def words_of(kind: Any) -> tuple[str, ...]:
    """Return the words that an annotated type takes: of `int | Literal["auto"]` it is "auto"."""
    if get_origin(kind) in (Union, UnionType):
        return tuple(word for option in get_args(kind) for word in words_of(option))
    return get_args(kind) if get_origin(kind) is Literal else ()


def show(value: Any) -> str:
    """Return a value as a user writes it on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)
