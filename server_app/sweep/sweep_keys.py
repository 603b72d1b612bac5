"""The keys of a sweep: read, expanded into jobs, and written so that Hydra passes them on untouched.

Hydra would compose every job before it runs it, and one wrong combination would end the whole sweep. So it is
given `++key=value` over an empty configuration, to which it cannot object; each job composes its own.
"""

import itertools
from collections.abc import Iterator, Sequence

from hydra.core.override_parser.types import Glob, Override

from florets.conf.compose import compose
from florets.conf.overrides import GROUPS, parse
from florets.conf.problems import ConfigError

# In Hydra's empty space a key holds either a value or other keys; these hold both, as in
# `strategy=ifca strategy.init=same`.
_CHOICES = {name: f"{name}.choice" for name in (*GROUPS, "strategy")}
PRECHECKED = 20
"""Jobs of a sweep that are looked at before it begins."""


def read_sweep(overrides: Sequence[str]) -> list[Override]:
    """Return the overrides as Hydra's grammar reads them.

    Raises
    ------
    ConfigError
        If one cannot be read, adds or removes a key, or is a glob.
    """
    problems: list[str] = []
    parsed = parse(overrides, problems)
    seen: dict[str, str] = {}
    for override in parsed:
        text, key = str(override.input_line), override.key_or_group
        if override.is_add() or override.is_force_add() or override.is_delete() or override.package is not None:
            problems.append(f"{text}: keys are neither added, removed nor moved; write key=value or key=value,value.")
        elif isinstance(override.value(), Glob):
            problems.append(f"{text}: glob is not understood; name the values, separated by commas.")
        elif seen.setdefault(key, text) != text:
            problems.append(f"{key}: given twice, {seen[key]} and {text}; separate the values of one key by commas.")
    if problems:
        raise ConfigError(problems)
    return parsed


def count_jobs(parsed: Sequence[Override]) -> int:
    """Return the number of combinations."""
    return sum(1 for _ in expand(parsed))


def expand(parsed: Sequence[Override]) -> Iterator[list[str]]:
    """Yield the overrides of every job: all combinations, the last key changing fastest."""
    choices = []
    for override in parsed:
        several = override.is_discrete_sweep()
        values = list(override.sweep_string_iterator()) if several else [override.get_value_element_as_str()]
        choices.append([f"{override.key_or_group}={value}" for value in values])
    for combination in itertools.product(*choices):
        yield list(combination)


def require_one_valid(parsed: Sequence[Override]) -> None:
    """Raise the first job's ConfigError when no job can run, as when a key is mistyped.

    Of a large sweep only the first jobs are looked at: each of its jobs is checked before it runs, anyway.
    """
    first: ConfigError | None = None
    for number, overrides in enumerate(expand(parsed)):
        if number == PRECHECKED:
            return
        try:
            compose(overrides)
            return
        except ConfigError as error:
            first = first or error
    if first is not None:
        raise first


def encode(override: Override) -> str:
    """Return an override in the form that Hydra takes without looking at it."""
    key, _, value = str(override.input_line).partition("=")
    return f"++{_CHOICES.get(key, key)}={value}"


def decode(text: str) -> str:
    """Return what `encode` was given, for one job."""
    key, _, value = text.removeprefix("++").partition("=")
    return f"{next((group for group, choice in _CHOICES.items() if choice == key), key)}={value}"
