"""The keys of a sweep: read, expanded into jobs, and written so that Hydra passes them on untouched.

Hydra would compose every job before it runs it, and one wrong combination would end the whole sweep. So it is
given `++key=value` over an empty configuration, to which it cannot object; each job composes its own.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from hydra.core.override_parser.types import Glob, IntervalSweep, Override

from florets.conf.compose import compose
from florets.conf.overrides import parse
from florets.conf.presets import GROUPS
from florets.conf.problems import ConfigError
from florets.conf.validate import lacks_sums
from florets.studies import one_run

_DECIDING = ("experiment", "task", "task.loss", "task.validation_fraction", "measure")
"""Keys on which the validation figure depends."""
_TRIED = 20
"""Combinations of the other keys that are tried until one can run."""


def measures(parsed: Sequence[Override]) -> set[str]:
    """Return the names of the jobs' validation figures, empty for jobs without validation data.

    Of the keys that do not decide it, the first combinations that can run are looked at.
    """
    deciding: list[Override] = []
    others: list[Override] = []
    starts: list[str] = []
    for override in parsed:
        value = override.value()
        if isinstance(value, IntervalSweep):
            starts.append(f"{override.key_or_group}={value.start:g}")
        else:
            (deciding if override.key_or_group in _DECIDING else others).append(override)
    names: set[str] = set()
    problem: ConfigError | None = None
    for chosen in expand(deciding):
        for rest in itertools.islice(expand(others), _TRIED):
            try:
                config = compose([*chosen, *rest, *starts])
            except ConfigError as error:
                problem = problem or error
                continue
            if wrong := lacks_sums(config):
                raise ConfigError(wrong)
            names.add(one_run.measure_name(config))
            break
    if not names and problem is not None:
        raise problem
    return names


# In Hydra's empty space a key holds either a value or other keys; these hold both, as in
# `strategy=ifca strategy.init=same`.
_CHOICES = {name: f"{name}.choice" for name in (*GROUPS, "strategy")}
# One of these is as good as another.
_SEED = re.compile(r"seed=\d{1,18}")


def read_sweep(overrides: Sequence[str]) -> list[Override]:
    """Return the overrides as Hydra's grammar reads them."""
    problems: list[str] = []
    parsed = parse(overrides, problems)
    seen: dict[str, str] = {}
    for override in parsed:
        text, key = str(override.input_line), override.key_or_group
        if override.is_add() or override.is_force_add() or override.is_delete() or override.package is not None:
            problems.append(f"{text}: keys are neither added, removed nor moved; write key=value or key=value,value.")
        elif key == "tracker" and override.is_sweep_override():
            values = text.partition("=")[2]
            problems.append(f"{text}: would make runs that replace each other; all at once are tracker=[{values}].")
        elif isinstance(override.value(), Glob):
            problems.append(f"{text}: glob is not understood; name the values, separated by commas.")
        elif seen.setdefault(key, text) != text:
            problems.append(f"{key}: given twice, {seen[key]} and {text}; separate the values of one key by commas.")
    if problems:
        raise ConfigError(problems)
    return parsed


def expand(parsed: Sequence[Override]) -> Iterator[list[str]]:
    """Yield the overrides of every job: all combinations, the last key changing fastest."""
    choices = [[f"{override.key_or_group}={value}" for value in values_of(override)] for override in parsed]
    for combination in itertools.product(*choices):
        yield list(combination)


def values_of(override: Override) -> list[str]:
    """Return the values of an override as texts."""
    several = override.is_discrete_sweep()
    return list(override.sweep_string_iterator()) if several else [override.get_value_element_as_str()]


def check_jobs(parsed: Sequence[Override]) -> dict[str, int]:
    """Check the configuration of every job, and return the problems that some have, with the number of those jobs."""
    jobs = list(expand(parsed))
    found = list(_problems(jobs))
    if all(found):
        raise ConfigError(list(dict.fromkeys(itertools.chain(*found))))
    by_value: dict[str, list[list[str]]] = {}
    for overrides, problems in zip(jobs, found, strict=True):
        for text in overrides:
            key = text.partition("=")[0]
            of_key = [line for line in problems if line.startswith((f"{key}=", f"{key}:"))]
            by_value.setdefault(text, []).append(of_key)
    wrong = [line for lines in by_value.values() if all(lines) for line in itertools.chain(*lines)]
    if wrong:
        raise ConfigError(list(dict.fromkeys(wrong)))
    return Counter(itertools.chain(*found))


def _problems(jobs: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the problems of each job; those that differ in their seeds alone are checked once."""
    checked: dict[tuple[str, ...], list[str]] = {}
    for overrides in jobs:
        alike = tuple("seed=0" if _SEED.fullmatch(text) else text for text in overrides)
        if alike not in checked:
            try:
                compose(overrides)
                checked[alike] = []
            except ConfigError as error:
                checked[alike] = list(error.problems)
        yield checked[alike]


def encode(override: Override) -> str:
    """Return an override in the form that Hydra takes without looking at it."""
    key, _, value = str(override.input_line).partition("=")
    return f"++{_CHOICES.get(key, key)}={value}"


def decode(text: str) -> str:
    """Return what `encode` was given, for one job."""
    key, _, value = text.removeprefix("++").partition("=")
    return f"{next((group for group, choice in _CHOICES.items() if choice == key), key)}={value}"
