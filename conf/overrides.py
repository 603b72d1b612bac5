"""Reading `key=value` texts by Hydra's grammar, with our rules and our errors; nested values in layers."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from florets.conf.problems import ConfigError
from florets.conf.schema import OPTION_KEYS

SHORT = {"target": "task.table.target", "owner": "task.table.owner"}
"""Keys of the tables of real sites that may be typed without their group."""

_TASK_PARTS = ("data", "partition", "model")
# What Hydra reads as something else than text, in any case of its letters.
_NO_TEXT = re.compile(r"null|true|false|[+-]?(nan|inf|[0-9._]+(e[+-]?[0-9_]+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class Given:
    """One key that a user gave a value: the key, the value as read, and the text as typed."""

    key: str
    value: Any
    text: str


def parse_overrides_string(text: str) -> list[str]:
    """Split a text such as "k=5 seed=1" into its overrides, quotes as in a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"overrides={text!r}: {error}; close every quote.") from None


def parse(overrides: Sequence[str], problems: list[str]) -> list[Override]:
    """Return what Hydra's grammar makes of each text; a text that it cannot read becomes a problem."""
    parsed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        candidates = [text]
        if value and not set(value) & set(",'\"[]{}()\\"):
            # The grammar takes ~ and letters beyond ASCII only in quotes, and folders may well have them.
            candidates.append(f"{key}='{value}'")
        for candidate in candidates:
            try:
                parsed.append(_parse_one(candidate))
                break
            except HydraException:
                continue
        else:
            remedy = "put values with special characters in quotes: \"key='value'\""
            problems.append(
                f"{text}: cannot be read; {remedy}." if equals else f"{text}: is not of the form key=value."
            )
    return parsed


@cache
def _parser() -> OverridesParser:
    return OverridesParser.create()


# The jobs of a sweep have most of their texts in common. What is returned is not changed: `value()` copies.
@lru_cache(maxsize=4096)
def _parse_one(text: str) -> Override:
    return _parser().parse_override(text)


def read_overrides(overrides: Sequence[str], problems: list[str]) -> list[Given]:
    """Return every key that was given, once each; what cannot be is appended to `problems`."""
    found: dict[str, Given] = {}
    for override in parse(overrides, problems):
        text = str(override.input_line)
        key = override.key_or_group
        if override.is_delete() or override.is_add() or override.is_force_add() or override.package is not None:
            problems.append(
                f"{text}: keys are neither added, removed nor moved; the keys of an experiment are fixed "
                f"(florets --help lists them) and are set as {key.replace('/', '.')}=<value>."
            )
        elif override.is_sweep_override():
            problems.append(
                f"{text}: several values make a sweep: add -m. For one list, write {key}=[{text.partition('=')[2]}]."
            )
        else:
            _add(Given(key, override.value(), text), found, problems)
    return list(found.values())


def with_full_names(given: Sequence[Given], problems: list[str]) -> list[Given]:
    """Return keys under their full names, once each; a key that was given by both with two values is a problem."""
    found: dict[str, Given] = {}
    for entry in given:
        if name := SHORT.get(entry.key):
            # A column's name may look like a number.
            value = entry.value if isinstance(entry.value, str) else entry.text.partition("=")[2]
            entry = Given(name, value, entry.text)
        _add(entry, found, problems)
    return list(found.values())


def _add(entry: Given, found: dict[str, Given], problems: list[str]) -> None:
    earlier = found.setdefault(entry.key, entry)
    # 1 equals True in Python, but k=1 and k=true are two things.
    if earlier is not entry and (earlier.value != entry.value or type(earlier.value) is not type(entry.value)):
        problems.append(f"{entry.key}: given twice with two values, {earlier.text} and {entry.text}; keep one.")


def quote(value: Any) -> str:
    """Return a value so that Hydra's grammar reads exactly it: a path may hold commas, quotes or braces."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and (_NO_TEXT.fullmatch(value) or not re.fullmatch(r"[A-Za-z/][\w./-]*", value, re.A)):
        return QuotedString(value, Quote.single).with_quotes()
    return str(value)


def is_option(key: str) -> bool:
    """Return whether a dotted key is one of the free option mappings, or an entry of one."""
    return any(key == option or key.startswith(f"{option}.") for option in OPTION_KEYS)


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested mappings with their values; option mappings count as one value."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and not is_option(key):
            yield from dotted(value, f"{key}.")
        else:
            yield key, value


def nest(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys as nested mappings, a whole mapping before single entries of it."""
    nested: dict[str, Any] = {}
    for key in sorted(given, key=lambda key: key.count(".")):
        *parents, last = key.split(".")
        node = nested
        for parent in parents:
            inner = node.get(parent)
            node[parent] = dict(inner) if isinstance(inner, Mapping) else {}
            node = node[parent]
        node[last] = given[key]
    return nested


def overlay(values: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Lay a higher layer over `values`, in place; options of a data set, partition or model that it replaces go."""
    task, over = values.setdefault("task", {}), layer.get("task", {})
    for part in _TASK_PARTS:
        if part in over and over[part] != task.get(part):
            task.pop(f"{part}_options", None)
    merge(values, layer)


def merge(values: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Lay nested mappings over others, in place."""
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            merge(values[name], value)
        else:
            values[name] = value
