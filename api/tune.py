"""`florets.tune`: settings chosen by validation data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from florets.api.keys import choices_of
from florets.api.sweep import INTERRUPTED, Sweep, with_choices
from florets.engines import engine
from florets.task.imported import import_from


def tune(
    experiment: Any = None,
    /,
    *,
    trials: int | None = None,
    sampler: str = "tpe",
    n_jobs: int = 1,
    intervals: dict[str, tuple[float, float]] | None = None,
    **keys: Any,
) -> Sweep:
    """Run an experiment with different settings, and return them with the best one by validation data as ``best``.

    Parameters
    ----------
    experiment : str, Federation or data, optional
        Name of the preset; by default the quickstart. Or clients' data, as ``clients=``.
    trials : int, optional
        Number of settings that are tried; by default 20, or with a grid all combinations.
    sampler : {"tpe", "random", "grid"}
        How the next setting is proposed: by what the earlier ones gave, at random, or all combinations in turn. The
        first two need the extra ``tune``.
    n_jobs : int
        Trials at a time, in separate processes; more than one needs the extra ``sweep``.
    intervals : dict of str to (low, high), optional
        Keys that are searched between two numbers, ``{"train.learning_rate": (0.001, 0.1)}``: integers if both are.
        An interval of floats whose ends are a factor of 10 or more apart is searched on a logarithmic scale.
    **keys
        The keys of the command; those with a list, tuple, range, array or Series of values are searched over.

    Returns
    -------
    Sweep
        Every trial; the choice was made by the experiment's ``measure`` on validation data, of which a fifth of each
        client's training records is held out unless ``task.validation_fraction`` is given.

    Raises
    ------
    ConfigError
        If a value is wrong, nothing is searched over, or an extra is missing.
    KeyboardInterrupt
        If it is interrupted, once the summary of the trials that ran is written.
    """
    texts = choices_of(*with_choices(experiment, keys)) + [
        f"{key}={_interval(*ends)}" for key, ends in (intervals or {}).items()
    ]
    code, folder = run_tune(texts, trials, sampler, n_jobs)
    if code == INTERRUPTED:
        raise KeyboardInterrupt(f"the trials that ran are in {folder}")
    return Sweep(folder)


def run_tune(overrides: Sequence[str], trials: int | None, sampler: str, n_jobs: int) -> tuple[int, Path]:
    """Run the search that `key=value` texts describe; return the exit code and the sweep's folder."""
    from florets.engines.go_on import Engine
    from florets.studies.sweep.launch import run_sweep
    from florets.studies.tune import tune_overrides

    caller = Path.cwd()
    import_from(caller)
    return run_sweep(tune_overrides(overrides, trials, sampler, n_jobs), caller, Engine(engine.run, engine.resume))


def _interval(low: float, high: float) -> str:
    is_wide = isinstance(low, float) and low > 0 and high >= 10 * low
    text = f"interval({low},{high})"
    return f"tag(log,{text})" if is_wide else text
