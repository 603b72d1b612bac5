"""`florets.theory`: what a paper's theorems say about an experiment, next to its data and its run."""

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

if TYPE_CHECKING:
    from pandas import DataFrame


@one_thread_within()
def theory(experiment: str | None = None, /, **keys: Any) -> "DataFrame":
    """Compare an experiment with the conditions and promises of the theorems of two-phase, CLoVE or CFL-GP.

    Nothing is trained: what only a run can measure is read from the finished run of the same keys, or from
    ``run=<folder>``. Constants that a paper leaves open are 1.

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

    Notes
    -----
    ::

        florets theory experiment=mixed_regression/a     kappa, chi squared(n), rho, nu, the bound; m, n_H and T
        florets theory experiment=clove/theorem          separation, proximity, the conditions of Theorem 4.1
        florets theory experiment=cfl_gp/linear          the gradient gap, and the rounds that Theorem 1 asks for
        florets theory run=<folder>                      next to what that run has measured

    Columns: theory: what is required or promised; here: the experiment's value; holds: whether it complies. Empty:
    not known, for the reason given as the source, or not run. inf: never, or a bound that says nothing.
    """
    import pandas as pd

    overrides, caller = overrides_of(experiment, keys), Path.cwd()
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
    frame = pd.DataFrame(theory_of(config, folder if is_run else None), columns=Row._fields)
    state = f"run: {folder}" if is_run else "not run yet: what only a run measures is empty"
    frame.attrs["title"] = f"{config.experiment}, {config.strategy.name}, seed {config.seed}; {state}"
    return frame
