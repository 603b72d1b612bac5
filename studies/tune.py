"""`florets tune`: settings chosen by validation data, as a sweep whose sweeper proposes the next one."""

import math
import re
from collections.abc import Sequence

from hydra.core.override_parser.types import IntervalSweep, Override

from florets.conf.problems import ConfigError
from florets.reports.console import say
from florets.reports.scores import HIGHER_IS_BETTER
from florets.studies.sweep.keys import measure_of, read_sweep, values_of

FRACTION = "task.validation_fraction"
_INTEGERS = re.compile(r"(?<!int\()(?<!float\()interval\(\s*[+-]?\d+\s*,\s*[+-]?\d+\s*\)")
TRIALS = 20
HELD_OUT = 0.2
"""Of each client's training records, where the experiment holds out none."""


def tune_overrides(overrides: Sequence[str], trials: int | None, n_jobs: int) -> tuple[list[str], int | None]:
    """Return the overrides of the sweep that chooses among settings, and how many it proposes; None: it runs all.

    `overrides`: `key=value` texts; those with several values or an interval are searched over. All combinations are
    run where they are at most `trials` (20 unless given): drawn again, a setting gives the same, and a private run
    spends again. Otherwise each trial is proposed by what the earlier ones gave (tree of Parzen estimators).
    """
    problems = []
    if trials is not None and trials < 1:
        problems.append(f"trials={trials}: must be at least 1.")
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
    if problems:
        raise ConfigError(problems)
    trials = trials or TRIALS
    measure = measure_of(parsed)
    if not measure:
        if any(override.key_or_group == FRACTION for override in parsed):
            raise ConfigError(f"{FRACTION}=0: settings are chosen by validation data; give 0.2, or leave it out.")
        parsed += read_sweep([f"{FRACTION}={HELD_OUT}"])
        measure = measure_of(parsed)
        say(f"Settings are chosen by validation data: {FRACTION}={HELD_OUT}.")
    launcher = [] if n_jobs == 1 else ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={n_jobs}"]
    listed = all(override.is_discrete_sweep() for override in searched)
    if listed and math.prod(len(values_of(override)) for override in searched) <= trials:
        return [*(str(override.input_line) for override in parsed), *launcher], None
    if any(override.key_or_group == "seed" for override in searched):
        raise ConfigError(
            "seed: of several the luckiest would be chosen; give one, and run the best setting with several, or let "
            "all combinations be tried (trials)."
        )
    return [
        *map(_text, parsed),
        *launcher,
        "hydra/sweeper=optuna",
        "hydra/sweeper/sampler=tpe",
        f"hydra.sweeper.direction={'maximize' if HIGHER_IS_BETTER[measure] else 'minimize'}",
        f"hydra.sweeper.n_trials={trials}",
        f"hydra.sweeper.n_jobs={n_jobs}",
        # Equal commands try equal settings, as far as one trial at a time goes.
        "hydra.sweeper.sampler.seed=0",
        # A setting that diverges is a bad one, and no reason to end the search.
        "hydra.sweeper.max_failure_rate=1",
    ], trials


def _is_interval(interval: IntervalSweep) -> bool:
    low, high = interval.start, interval.end
    return low is not None and high is not None and low < high and (low > 0 or "log" not in interval.tags)


def _text(override: Override) -> str:
    """Return an override as the sweeper is given it."""
    if override.is_range_sweep():
        # Optuna would also try its end.
        return f"{override.key_or_group}={','.join(values_of(override))}"
    # Hydra takes the ends of an interval for floats.
    return _INTEGERS.sub(r"int(\g<0>)", str(override.input_line))
