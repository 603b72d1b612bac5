"""`florets.sweep`, `florets.tune` and their result: many runs, one for each combination of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from florets.api.clients import clients_of
from florets.api.keys import choices_of
from florets.conf.problems import ConfigError, did_you_mean
from florets.engines import engine
from florets.reports.summary import Curve
from florets.reports.tables import ResultTable
from florets.studies.sweep import report
from florets.studies.sweep.jobs import JOBS, SUMMARY, Job, group_jobs, read_jobs
from florets.task.device import one_thread_within

if TYPE_CHECKING:
    import pandas as pd

    from florets.reports.figures import Picture


_INTERRUPTED = 130
"""Exit code of a sweep that was interrupted."""
_OF_ROUNDS: Mapping[str, Curve] = {name: name for name in get_args(Curve)}
"""Measures that rounds have."""


class Sweep:
    """The results of a sweep.

    Parameters
    ----------
    folder : Path
        The sweep's folder.

    Raises
    ------
    ConfigError
        If the folder holds no sweep.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser().absolute()
        if not (self.folder / JOBS).is_file():
            raise ConfigError(f"{self.folder}: holds no sweep; give the folder that a sweep named as its results.")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per job, failed ones included: its keys, its figures, its folder, and why it failed."""
        import pandas as pd

        return pd.read_csv(self.folder / SUMMARY, keep_default_na=False, na_values=[""])

    @property
    def measures(self) -> dict[str, str]:
        """The figures that tables and plots know, with their headings."""
        return {name: measure.title for name, measure in report.measures_of(self._jobs).items()}

    @property
    def best(self) -> report.Best | None:
        """The best setting by validation data; None without such data or with one setting."""
        return report.best_of(self._jobs)

    def table(self, columns: str | Sequence[str] | None = None) -> ResultTable:
        """Return means ± sample standard deviations over the seeds, a row for each setting, the best in bold.

        Its `latex()` is for papers. Other tables are pivots of `frame`.

        Parameters
        ----------
        columns : str or several, optional
            Names of `measures`; by default all.

        Raises
        ------
        ConfigError
            If there is no such measure.
        """
        names = [columns] if isinstance(columns, str) else list(columns or self.measures)
        higher = [self._measure(name, "columns").higher for name in names]
        failed = sum(job.summary is None for job in self._jobs)
        note = f"{failed} of {len(self._jobs)} jobs failed." if failed else ""
        return replace(report.means(self._jobs, names, titles=True).marked(higher), note=note)

    def compare(self, measure: str | None = None, against: str | None = None) -> pd.DataFrame:
        """Return the means with 95 % intervals and the differences on equal seeds, one row for each setting.

        ``p`` is that of the paired t test and ``p_holm`` is corrected by Holm's procedure for the number of
        comparisons in the table. Fewer than three pairs, or differences without a spread, have no test.

        Parameters
        ----------
        measure : str, optional
            One of `measures`; by default the accuracy, or else the loss.
        against : str, optional
            The strategy that the others are compared with, within equal settings; by default the first.

        Raises
        ------
        ConfigError
            If there is no such measure or strategy, or all jobs failed.
        """
        import pandas as pd

        groups = group_jobs(self._jobs)[1]
        if not any(group.runs for group in groups):
            raise ConfigError(f"{self.folder}: nothing to compare: all jobs failed.")
        if against is not None:
            _check(against, [group.strategy for group in groups], "against", "no such strategy ran")
            groups.sort(key=lambda group: group.strategy != against)
        shown = report.main_measure(self._jobs) if measure is None else self._measure(measure)
        titles = {group.label: group.title for group in groups}
        lines = [
            {
                "name": titles[one.name],
                "runs": one.spread.number,
                "mean": one.spread.mean,
                "low": one.spread.low,
                "high": one.spread.high,
                "against": titles.get(one.against, ""),
                "pairs": one.difference.number,
                "difference": one.difference.mean,
                "difference_low": one.difference.low,
                "difference_high": one.difference.high,
                "p": one.p,
                "p_holm": one.p_holm,
            }
            for one in report.compared(groups, shown)
        ]
        frame = pd.DataFrame(lines).set_index("name").astype({"p": float, "p_holm": float})
        frame.columns.name = shown.title
        return frame

    def plot(self, measure: str | None = None) -> Picture:
        """Return a figure of means over the seeds, by round; ``.save("name")`` writes it as PNG, PDF and SVG.

        Parameters
        ----------
        measure : str, optional
            A figure that rounds have, such as ``"ari"``; by default the most informative ones.

        Raises
        ------
        ConfigError
            If rounds have no such figure, or there is nothing to draw.
        """
        # matplotlib takes a second
        from florets.reports.run_figures import sweep_figure

        if measure is not None:
            _check(measure, _OF_ROUNDS, "measure", "rounds have no such figure")
        groups = group_jobs(self._jobs)[1]
        curves = {group.title: runs for group in groups if (runs := report.lines_of(group))}
        figure = sweep_figure(curves, quantities=[_OF_ROUNDS[measure]] if measure else [])
        if figure is None:
            raise ConfigError(f"{self.folder}: nothing to draw: the runs' folders or that figure are missing.")
        return figure

    @cached_property
    def _jobs(self) -> list[Job]:
        return read_jobs(self.folder)

    def _measure(self, name: str, what: str = "measure") -> report.SweepMeasure:
        known = report.measures_of(self._jobs)
        _check(name, known, what, "the sweep has no such measure")
        return known[name]

    def __repr__(self) -> str:
        return f"<florets.Sweep {self.folder}>\n\n{report.summary_markdown(self._jobs)}"


@one_thread_within()
def sweep(experiment: Any = None, /, *, keep: bool = False, **keys: Any) -> Sweep:
    """Run every combination of values and return the results.

    Parameters
    ----------
    experiment : str, several, Federation or data, optional
        Name of the preset, or the presets to compare; by default the quickstart. Or clients' data, as ``clients=``.
    keep : bool
        Whether jobs that are finished already are kept, and interrupted ones go on, as with the command's
        ``--continue``.
    **keys
        The keys of the command; a list, tuple, range, array or Series of values is tried value by value:
        ``strategy=["clove", "ifca"], seed=range(3)``. Hydra's own keys are given as
        ``**{"hydra/launcher": "joblib"}``. Data in memory are given as in `run`.

    Returns
    -------
    Sweep
        Failed jobs are rows without figures; the others go on.

    Raises
    ------
    ConfigError
        If a value is wrong in every job that has it, or no job can run.
    KeyboardInterrupt
        If it is interrupted, once the summary of the jobs that ran is written.
    """
    return _run(choices_of(*_with_choices(experiment, keys)), keep)


def _run(texts: Sequence[str], keep: bool = False, trials: int | None = None) -> Sweep:
    from florets.studies.go_on import Engine
    from florets.studies.sweep.launch import run_sweep

    code, folder = run_sweep(texts, Path.cwd(), Engine(engine.run, engine.resume), keep, trials)
    if code == _INTERRUPTED:
        raise KeyboardInterrupt(f"what has run is in {folder}; florets.sweep(keep=True) goes on")
    return Sweep(folder)


def _with_choices(experiment: Any, keys: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a preset, or several, and keys with several values, with clients' data in their folder."""
    experiment, keys, federation = clients_of(experiment, keys, several=True)
    # A list is one value here, not several to try.
    own = {name: [keys[name]] for name in (() if federation is None else federation.settings)}
    return experiment, {**keys, **own}


def _check(name: str, known: Iterable[str], what: str, problem: str) -> None:
    names = list(dict.fromkeys(known))
    if name not in names:
        raise ConfigError(f"{what}={name}: {problem}.{did_you_mean(name, names)} There are: {', '.join(names)}.")


def tune(
    experiment: Any = None,
    /,
    *,
    trials: int | None = None,
    n_jobs: int = 1,
    intervals: dict[str, tuple[float, float]] | None = None,
    **keys: Any,
) -> Sweep:
    """Run an experiment with different settings, and name the best by its validation figure, never by test data.

    The figure is the experiment's ``measure``. Without ``task.validation_fraction`` a fifth of each client's training
    records is held out. The last line has the best setting, the result as its ``best``.

    Parameters
    ----------
    experiment : str, Federation or data, optional
        Name of the preset; by default the quickstart. Or clients' data, as ``clients=``.
    trials : int, optional
        Number of settings that are tried; by default 20. All combinations are, if they are no more than that: with
        several seeds their mean then counts. Otherwise each is proposed by the earlier ones (Optuna, the extra
        ``tune``).
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
        Every trial.

    Raises
    ------
    ConfigError
        If a value is wrong, nothing is searched over, or an extra is missing.
    KeyboardInterrupt
        If it is interrupted, once the summary of the trials that ran is written.

    Notes
    -----
    ::

        florets tune train.learning_rate=0.01,0.03,0.1                      one of these
        florets tune 'train.learning_rate=tag(log,interval(0.001,0.1))'     a number, on a logarithmic scale
        florets tune 'train.local_epochs=interval(1,5)'                     an integer from 1 to 5
    """
    from florets.studies.tune import tune_overrides

    searched = [f"{key}={_interval(*ends)}" for key, ends in (intervals or {}).items()]
    texts, proposed = tune_overrides(choices_of(*_with_choices(experiment, keys)) + searched, trials, n_jobs)
    return _run(texts, trials=proposed)


def _interval(low: float, high: float) -> str:
    is_wide = isinstance(low, float) and low > 0 and high >= 10 * low
    text = f"interval({low},{high})"
    return f"tag(log,{text})" if is_wide else text
