"""The arguments of a command that has a word of its own: `key=value`, and few options."""

from collections.abc import Collection, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError, did_you_mean


def read_keys(
    command: str,
    arguments: Sequence[str],
    known: Sequence[str],
    needed: Sequence[str] = (),
    truths: Collection[str] = (),
) -> dict[str, str]:
    """Return the values by key; ConfigError for an unknown key, one without a value or with two, or a missing one.

    The `needed` keys are paths, the `truths` are true or false.
    """
    problems: list[str] = []
    given: dict[str, str] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if key not in known:
            problems.append(f"{text}: florets {command} has no such key.{did_you_mean(key, known)}")
        elif not equals or not value:
            problems.append(f"{text}: needs a value, {key}=<value>.")
        elif given.setdefault(key, value) != value:
            problems.append(f"{key}: given twice with two values; keep one.")
    problems += [
        f"{key}={given[key]}: must be true or false."
        for key in truths
        if given.get(key, "true") not in ("true", "false")
    ]
    problems += [f"{key} is missing: florets {command} needs {key}=<path>." for key in needed if key not in given]
    if problems:
        raise ConfigError(problems)
    return given


def keys_and_paths(
    command: str, arguments: Sequence[str], known: Sequence[str]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the values by key, the other arguments, which are paths, and the problems with options and keys."""
    given, paths, problems = dict[str, str](), list[str](), list[str]()
    for text in arguments:
        key, equals, value = text.partition("=")
        if equals and key in known:
            given[key] = value
        elif text.startswith("-") or (equals and key.isidentifier() and not Path(text).exists()):
            names = ", ".join(known)
            problems.append(f"{text}: florets {command} has no such key ({names}).{did_you_mean(key, known)}")
        else:
            paths.append(text)
    return given, paths, problems
