"""`florets.theory`: what a paper's theorems say about an experiment, next to its data and its run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.api.keys import overrides_of
from florets.conf.consent import TRUST
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute, results_folder, saved_config
from florets.strategies.base.theory import Row
from florets.studies import one_run
from florets.studies.theory import theory_of
from florets.task.device import one_thread_within
from florets.task.imported import import_from

if TYPE_CHECKING:
    from pandas import DataFrame


@one_thread_within()
def theory(experiment: str | None = None, /, **keys: Any) -> "DataFrame":
    """Compare an experiment with the conditions and promises of the theorems of two-phase, CLoVE or CFL-GP.

    Nothing is trained. What only a run can measure is read from the finished run of the same keys, if there is one.

    Parameters
    ----------
    experiment : str, optional
        Name of the preset; by default the quickstart.
    **keys
        The keys of the command; or ``run=`` alone, a finished run's folder, with ``trust=True`` if it names code.

    Returns
    -------
    DataFrame
        A row for each quantity: ``quantity``, ``rule``, ``theory``, ``here``, ``holds`` and ``source``; missing
        values are not known, or not run yet.

    Raises
    ------
    ConfigError
        With every problem of the keys, if no theorem of the strategy is implemented, or if the true groups are not
        known.
    """
    import pandas as pd

    return pd.DataFrame(theory_overrides(overrides_of(experiment, keys))[1], columns=Row._fields)


def theory_overrides(overrides: Sequence[str]) -> tuple[str, list[Row]]:
    """Return a title and the rows of the experiment, or the run, that `key=value` texts name."""
    caller = Path.cwd()
    import_from(caller)
    named = [text.removeprefix("run=") for text in overrides if text.startswith("run=")]
    if named:
        others = [text for text in overrides if not text.startswith(("run=", f"{TRUST}="))]
        if others or len(named) > 1:
            raise ConfigError(
                [f"{text}: a run has its own keys; give run=<folder> alone." for text in others or named[1:]]
            )
        folder = absolute(named[0].strip("'\""), caller)
        config = saved_config(folder, trust=f"{TRUST}=true" in overrides)
    else:
        config = one_run.prepare(overrides, caller)
        folder = results_folder(config, overrides)
    is_run = (folder / "summary.json").is_file()
    if named and not is_run:
        raise ConfigError(f"run={folder}: this run is not finished; resume it, or give the experiment's keys.")
    rows = theory_of(config, folder if is_run else None)
    title = f"{config.experiment}, {config.strategy.name}, seed {config.seed}; "
    return title + (f"run: {folder}" if is_run else "not run yet: what only a run measures is empty"), rows
