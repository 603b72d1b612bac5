"""Reading `key=value` texts: Hydra's grammar, our rules, errors in our words."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from florets.conf.class_names import quoted
from florets.conf.problems import ConfigError

GROUPS = ("experiment", "task", "train")
"""Keys whose value names a file in conf/: they choose many settings at once. So does `strategy`, without a file."""


SHORT = {"target": "task.table.target", "owner": "task.table.owner"}
"""Keys of the tables of real sites that may be typed without their group."""


@dataclass(frozen=True)
class Given:
    """One key that a user gave a value: the key, the value as read, and the text as typed."""

    key: str
    value: Any
    text: str


def full(given: Given) -> Given:
    """Return a key that was typed for short under its full name; a column's name may look like a number."""
    if given.key not in SHORT:
        return given
    return Given(SHORT[given.key], given.text.partition("=")[2].strip("'\""), given.text)


def parse_overrides_string(text: str) -> list[str]:
    """Split a text such as "k=5 seed=1" into its overrides, quotes as in a shell.

    Raises
    ------
    ConfigError
        If a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError([f"overrides={text!r}: {error}; each quote needs its partner."]) from error


def parse(overrides: Sequence[str], problems: list[str]) -> list[Override]:
    """Return what Hydra's grammar makes of each text; a text that it cannot read becomes a problem."""
    parsed = []
    for text in map(quoted, overrides):
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
            entry = Given(key, override.value(), text)
            earlier = found.setdefault(key, entry)
            # 1 equals True in Python, but k=1 and k=true are two things.
            same = earlier.value == entry.value and type(earlier.value) is type(entry.value)
            if earlier is not entry and not same:
                problems.append(f"{key}: given twice with two values, {earlier.text} and {entry.text}; keep one.")
    return list(found.values())
