"""Sweepers that optimise, such as Optuna: by what figure, in which direction, and what they may not search over."""

import itertools
from collections.abc import Sequence

from hydra.core.override_parser.types import IntervalSweep, Override

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.validate import lacks_sums
from florets.engines import jobs
from florets.reports.scores import HIGHER_IS_BETTER
from florets.server_app.sweep.sweep_keys import expand

_MAXIMISE = {
    "optuna": ("hydra.sweeper.direction", "maximize"),
    "ax": ("hydra.sweeper.ax_config.experiment.minimize", "false"),
    "nevergrad": ("hydra.sweeper.optim.maximize", "true"),
}
"""The key, and its value, with which each of Hydra's optimising sweepers maximises; all minimise by default."""
_DECIDING = ("experiment", "task", "task.loss", "task.validation_fraction", "measure")
"""Keys on which the validation figure depends."""
_TRIED = 20
"""Combinations of the other keys that are tried until one can run."""


def direction(parsed: Sequence[Override], for_hydra: Sequence[str]) -> list[str]:
    """Return the override by which the chosen sweeper optimises the validation figure in the right direction.

    It is empty where the sweeper does not optimise, minimises rightly, is not known here, or where a direction was
    given by hand.

    Parameters
    ----------
    parsed : sequence of Override
        The experiment's own overrides.
    for_hydra : sequence of str
        Those for Hydra.

    Raises
    ------
    ConfigError
        If no job can run, if some have no validation data or other figures than others, or if the sweeper would
        search over seeds.
    """
    given = dict(text.lstrip("+~").split("=", 1) for text in for_hydra if "=" in text)
    sweeper = given.get("hydra/sweeper", "")
    if sweeper not in _MAXIMISE:
        return []
    key, maximise = _MAXIMISE[sweeper]
    for override in parsed:
        if override.key_or_group == "seed" and override.is_sweep_override():
            raise ConfigError(
                [
                    f"{override.input_line}: a sweeper that optimises would choose the luckiest seed; give one, and "
                    "run the best setting with several."
                ]
            )
    names = measures(parsed)
    if "" in names:
        raise ConfigError(
            [
                f"hydra/sweeper={sweeper}: settings are chosen by validation data, never by test data, and some of "
                "these jobs have none; add task.validation_fraction=0.2."
            ]
        )
    if len(names) > 1:
        raise ConfigError(
            [
                f"some of these jobs have the validation figure {' and others '.join(sorted(names))}, and no sweeper "
                "can compare them; optimise each kind of task by itself, or give measure."
            ]
        )
    return [f"{key}={maximise}"] if HIGHER_IS_BETTER[names.pop()] and key not in given else []


def measures(parsed: Sequence[Override]) -> set[str]:
    """Return the names of the jobs' validation figures, empty for jobs without validation data.

    Of the keys that do not decide it, the first combinations that can run are looked at.

    Raises
    ------
    ConfigError
        If no job can run, or one would have no figure because clients are not asked for sums.
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
            names.add(jobs.measure_name(config))
            break
    if not names and problem is not None:
        raise problem
    return names
