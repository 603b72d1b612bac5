"""The arguments of a command that has a word of its own: `key=value`, and few options."""

from collections.abc import Sequence
from pathlib import Path

from florets.conf.problems import did_you_mean


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
