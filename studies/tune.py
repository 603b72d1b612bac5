"""`florets tune`: settings chosen by validation data, as a sweep whose sweeper proposes the next one."""

import math
import re
from collections.abc import Sequence
from typing import Literal, get_args

from hydra.core.override_parser.types import IntervalSweep, Override

from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.console import say
from florets.studies.sweep.keys import measures, read_sweep, values_of

Sampler = Literal["tpe", "random", "grid"]
SAMPLERS: tuple[str, ...] = get_args(Sampler)
FRACTION = "task.validation_fraction"
_INTEGERS = re.compile(r"(?<!int\()(?<!float\()interval\(\s*[+-]?\d+\s*,\s*[+-]?\d+\s*\)")
TRIALS = 20
HELD_OUT = 0.2
"""Of each client's training records, where the experiment holds out none."""


def tune_overrides(overrides: Sequence[str], trials: int | None, sampler: str, n_jobs: int) -> list[str]:
    """Return the overrides of the sweep that chooses among settings.

    `overrides`: `key=value` texts; those with several values or an interval are searched over. `trials`: number of
    settings that are tried; None: 20, or with ``grid`` all combinations. `sampler`: ``tpe`` proposes by what the
    earlier trials gave (tree of Parzen estimators), ``random`` draws, ``grid`` runs all combinations, as the others
    do if they are at most `trials`: drawn again, a setting gives the same, and a private run spends again.
    """
    problems = []
    if sampler not in SAMPLERS:
        problems.append(
            f"sampler={sampler}: there is no such sampler ({', '.join(SAMPLERS)}).{did_you_mean(sampler, SAMPLERS)}"
        )
    if trials is not None and (trials < 1 or sampler == "grid"):
        rule = "must be at least 1" if trials < 1 else "a grid runs all combinations; leave trials out"
        problems.append(f"trials={trials}: {rule}.")
    if n_jobs < 1:
        problems.append(f"n_jobs={n_jobs}: must be at least 1.")
    parsed = read_sweep(overrides)
    searched = [override for override in parsed if override.is_sweep_override()]
    if not searched:
        problems.append(
            "tune: nothing to choose among; give a key several values or an interval, as "
            "train.learning_rate=0.01,0.1 or 'train.learning_rate=tag(log,interval(0.001,0.1))'."
        )
    for override in (override for override in searched if not override.is_discrete_sweep()):
        interval = override.value()
        if isinstance(interval, IntervalSweep) and not _is_interval(interval):
            problems.append(f"{override.input_line}: the first end must be below the second, and with log above 0.")
        if sampler == "grid":
            problems.append(f"{override.input_line}: a grid needs values; give them, or sampler=tpe.")
    if problems:
        raise ConfigError(problems)
    listed = all(override.is_discrete_sweep() for override in searched)
    if listed and math.prod(len(values_of(override)) for override in searched) <= (trials or TRIALS):
        sampler = "grid"
    texts = [_text(override, sampler) for override in parsed]
    if "" in measures(parsed):
        if any(override.key_or_group == FRACTION for override in parsed):
            raise ConfigError(f"{FRACTION}=0: settings are chosen by validation data; give 0.2, or leave it out.")
        texts.append(f"{FRACTION}={HELD_OUT}")
        say(f"Settings are chosen by validation data: {FRACTION}={HELD_OUT}.")
    if n_jobs > 1:
        texts += ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={n_jobs}"]
    if sampler == "grid":
        return texts
    return [
        *texts,
        "hydra/sweeper=optuna",
        f"hydra/sweeper/sampler={sampler}",
        f"hydra.sweeper.n_trials={trials or TRIALS}",
        f"hydra.sweeper.n_jobs={n_jobs}",
        # Equal commands try equal settings, as far as one trial at a time goes.
        "hydra.sweeper.sampler.seed=0",
        # A setting that diverges is a bad one, and no reason to end the search.
        "hydra.sweeper.max_failure_rate=1",
    ]


def _is_interval(interval: IntervalSweep) -> bool:
    low, high = interval.start, interval.end
    return low is not None and high is not None and low < high and (low > 0 or "log" not in interval.tags)


def _text(override: Override, sampler: str) -> str:
    """Return an override as the sweeper is given it."""
    if sampler != "grid" and override.is_range_sweep():
        # Optuna would also try its end.
        return f"{override.key_or_group}={','.join(values_of(override))}"
    # Hydra takes the ends of an interval for floats.
    return _INTEGERS.sub(r"int(\g<0>)", str(override.input_line))
