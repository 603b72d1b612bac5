"""The direction that a sweeper such as Optuna optimises in: an accuracy is maximised, a loss minimised."""

import itertools
from collections.abc import Sequence

from hydra.core.override_parser.types import IntervalSweep, Override

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app import jobs
from florets.server_app.sweep.sweep_keys import expand

_MAXIMISE = {
    "optuna": ("hydra.sweeper.direction", "maximize"),
    "ax": ("hydra.sweeper.ax_config.experiment.minimize", "false"),
    "nevergrad": ("hydra.sweeper.optim.maximize", "true"),
}
"""The key, and its value, with which each of Hydra's optimising sweepers maximises; all minimise by default."""
_DECIDING = ("experiment", "task", "task.loss")
"""Keys on which it depends whether a job ends with an accuracy."""
_TRIED = 20
"""Combinations of the other keys that are tried until one can run."""


def direction(parsed: Sequence[Override], for_hydra: Sequence[str]) -> list[str]:
    """Return the override by which the chosen sweeper optimises the jobs' score in the right direction.

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
        If no job can run, or if some end with an accuracy and others with a loss.
    """
    given = dict(text.lstrip("+~").split("=", 1) for text in for_hydra if "=" in text)
    key, maximise = _MAXIMISE.get(given.get("hydra/sweeper", ""), ("", ""))
    if not key or key in given:
        return []
    scores = _scores(parsed)
    if len(scores) > 1:
        raise ConfigError(
            [
                "some of these jobs end with an accuracy and others with a loss, which a sweeper cannot compare; "
                "optimise each kind of task by itself."
            ]
        )
    return [f"{key}={maximise}"] if scores == {"accuracy"} else []


def _scores(parsed: Sequence[Override]) -> set[str]:
    """Return what the jobs end with; of the keys that do not decide it, the first combinations that can run."""
    deciding: list[Override] = []
    others: list[Override] = []
    starts: list[str] = []
    for override in parsed:
        value = override.value()
        if isinstance(value, IntervalSweep):
            starts.append(f"{override.key_or_group}={value.start}")
        else:
            (deciding if override.key_or_group in _DECIDING else others).append(override)
    scores: set[str] = set()
    problem: ConfigError | None = None
    for chosen in expand(deciding):
        for rest in itertools.islice(expand(others), _TRIED):
            try:
                scores.add(jobs.score_name(compose([*chosen, *rest, *starts])))
                break
            except ConfigError as error:
                problem = problem or error
    if not scores and problem is not None:
        raise problem
    return scores
