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

_TRIED = 200
"""Jobs that are looked at until one can run."""


def measure_of(parsed: Sequence[Override]) -> str:
    """Return the name of the validation figure of the first job that can run; empty without validation data."""
    values = {one.key_or_group: one.value() for one in parsed}
    starts = [f"{key}={value.start:g}" for key, value in values.items() if isinstance(value, IntervalSweep)]
    discrete = [one for one in parsed if not isinstance(values[one.key_or_group], IntervalSweep)]
    problem: ConfigError | None = None
    for overrides in itertools.islice(expand(discrete), _TRIED):
        try:
            config = compose([*overrides, *starts])
        except ConfigError as error:
            problem = problem or error
            continue
        if wrong := lacks_sums(config):
            raise ConfigError(wrong)
        return one_run.measure_name(config)
    assert problem is not None
    raise problem


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


def check_jobs(parsed: Sequence[Override]) -> Counter[str]:
    """Return the problems of the jobs' configurations, with the number of jobs that have each.

    Jobs that differ in their seeds alone are checked once. ConfigError where no job can run.
    """
    checked: dict[tuple[str, ...], list[str]] = {}
    found = []
    for overrides in expand(parsed):
        alike = tuple("seed=0" if _SEED.fullmatch(text) else text for text in overrides)
        if alike not in checked:
            try:
                compose(overrides)
                checked[alike] = []
            except ConfigError as error:
                checked[alike] = list(error.problems)
        found.append(checked[alike])
    problems = Counter(itertools.chain(*found))
    if all(found):
        raise ConfigError(list(problems))
    return problems


def encode(override: Override) -> str:
    """Return an override in the form that Hydra takes without looking at it."""
    key, _, value = str(override.input_line).partition("=")
    return f"++{_CHOICES.get(key, key)}={value}"


def decode(text: str) -> str:
    """Return what `encode` was given, for one job."""
    key, _, value = text.removeprefix("++").partition("=")
    return f"{next((group for group, choice in _CHOICES.items() if choice == key), key)}={value}"
