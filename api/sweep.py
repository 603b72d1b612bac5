"""`florets.sweep`, `florets.tune` and their result: many runs, one for each combination of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from florets.api.federation import clients_of
from florets.api.keys import choices_of
from florets.conf.problems import ConfigError, did_you_mean
from florets.engines import engine
from florets.reports.summary import Curve
from florets.reports.tables import Cell, ResultTable
from florets.studies.sweep import report
from florets.studies.sweep.best import Best, best_of
from florets.studies.sweep.jobs import STRATEGY, SUMMARY, Jobs, group_jobs, short
from florets.task.device import one_thread_within
from florets.task.imported import import_from

if TYPE_CHECKING:
    import pandas as pd

    from florets.reports.figures import Picture


_ROUND = "round"
INTERRUPTED = 130
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
        if not (self.folder / SUMMARY).is_file():
            raise ConfigError(f"{self.folder}: holds no sweep; give the folder that a sweep named as its results.")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per job, failed ones included: its keys, its figures, its folder, and why it failed."""
        import pandas as pd

        try:
            return pd.read_csv(self.folder / SUMMARY, keep_default_na=False, na_values=[""])
        except ValueError:
            raise ConfigError(f"{self.folder / SUMMARY}: is damaged; run the sweep again.") from None

    @property
    def measures(self) -> dict[str, str]:
        """The figures that tables and plots know, with their headings."""
        return {name: measure.title for name, measure in report.measures_of(self._jobs).items()}

    @property
    def best(self) -> Best | None:
        """The best setting by validation data; None without such data or with one setting."""
        return best_of(self._jobs)

    def table(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        measure: str | None = None,
        where: Mapping[str, Any] | None = None,
        best: Literal["bold"] | None = "bold",
    ) -> ResultTable:
        """Return means ± sample standard deviations over the seeds.

        Parameters
        ----------
        rows : str or several, optional
            Keys of the sweep, of whose values each combination is a row, such as ``"strategy"``; by default all keys
            that vary.
        columns : str or several, optional
            A key of the sweep, such as ``"k"``, with a column for each of its values; or names of `measures`. By
            default all measures.
        measure : str, optional
            With a key as ``columns``: the figure that is shown; by default the accuracy, or else the loss.
        where : mapping, optional
            Keys and values of the jobs that are shown.
        best : {"bold"} or None
            Whether the best of each comparison is marked: strategies are compared with each other, and without
            them in the table the rows.

        Raises
        ------
        ConfigError
            If there is no such key or measure, no such job, or another key varies within a cell.
        """
        jobs = self._where(where)
        names = [columns] if isinstance(columns, str) else list(columns or ())
        key = names[0] if len(names) == 1 and names[0] in jobs.shown else None
        if key is None and rows is None:
            self._chosen(names)
            chosen = names or list(report.measures_of(jobs))
            table = report.means(jobs, group_jobs(jobs)[1], chosen, titles=True, marks=best is not None)
            return replace(table, note=_note(jobs))
        row_keys = _varying(jobs, without=key) if rows is None else [rows] if isinstance(rows, str) else list(rows)
        for name in row_keys:
            _check(name, map(str, jobs.shown), "rows", "no such key varies")
        _refuse_mixed(jobs, [*row_keys, *([key] if key else [])])
        lines = jobs.by(row_keys)
        note = _note(jobs)
        if key is None:
            measures = self._chosen(names)
            heads = [measure.title for measure in measures]
            cells = [tuple(measure.cell(of) for measure in measures) for of in lines.values()]
        else:
            shown = self._measure(measure)
            heads = list(jobs.shown[key].unique())
            measures = [shown] * len(heads)
            places = [of.by([key]) for of in lines.values()]
            cells = [tuple(shown.cell(of[head,]) if (head,) in of else Cell("--") for head in heads) for of in places]
            title = f"{shown.title[:1].upper()}{shown.title[1:]}"
            note = f"{title}, mean ± sample standard deviation over seeds. {note}".strip()
        table = ResultTable(", ".join(row_keys), tuple(map(", ".join, lines)), tuple(heads), tuple(cells), note)
        higher = [one.higher for one in measures]
        return table.marked(higher, "rows" if key == STRATEGY else "columns") if best else table

    def latex(
        self,
        rows: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        caption: str = "",
        label: str = "",
        **choices: Any,
    ) -> str:
        """Return `table` as LaTeX for the package ``booktabs``, the best in bold and names escaped.

        Parameters
        ----------
        caption, label : str, optional
            LaTeX of a ``table`` around it; without either the result is the ``tabular`` alone.
        **choices
            The other parameters of `table`.
        """
        return self.table(rows, columns, **choices).latex(caption, label)

    def compare(
        self, measure: str | None = None, against: str | None = None, where: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the means with 95 % intervals and the differences on equal seeds, one row for each setting.

        ``p`` is that of the paired t test and ``p_holm`` is corrected by Holm's procedure for the number of
        comparisons in the table. Fewer than three pairs, or differences without a spread, have no test.

        Parameters
        ----------
        measure : str, optional
            One of `measures`; by default the accuracy, or else the loss.
        against : str, optional
            The strategy that the others are compared with, within equal settings; by default the first.
        where : mapping, optional
            Keys and values of the jobs that are compared.

        Raises
        ------
        ConfigError
            If there is no such measure, strategy or job, or all jobs failed.
        """
        import pandas as pd

        groups = group_jobs(self._where(where))[1]
        if not any(len(group.jobs.runs) for group in groups):
            raise ConfigError(f"{self.folder}: nothing to compare: all of these jobs failed.")
        if against is not None:
            _check(against, [group.strategy for group in groups], "against", "no such strategy ran")
            groups.sort(key=lambda group: group.strategy != against)
        shown = self._measure(measure)
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
        frame = pd.DataFrame(lines).set_index("name")
        frame[["p", "p_holm"]] = frame[["p", "p_holm"]].astype(float)
        frame.columns.name = shown.title
        return frame

    def plot(
        self, measure: str | None = None, x: str = _ROUND, lines: str = "", where: Mapping[str, Any] | None = None
    ) -> Picture:
        """Return a figure of means over the seeds; ``.save("name")`` writes it as PNG, PDF and SVG.

        Parameters
        ----------
        measure : str, optional
            One of `measures`. By default, over the rounds, the most informative ones; else the accuracy, or the loss.
        x : str
            ``"round"``, or a key of the sweep.
        lines : str, optional
            With a key as ``x``: the key with a line for each of its values; by default all others that vary. Where
            these make more than eight lines, as after `florets.tune`, each setting is a point instead.
        where : mapping, optional
            Keys and values of the jobs that are drawn.

        Raises
        ------
        ConfigError
            If there is no such key, measure or job, or nothing to draw.
        """
        # matplotlib takes a second
        from florets.reports.run_figures import settings_figure, sweep_figure

        jobs = self._where(where)
        if x == _ROUND:
            curves = {group.title: runs for group in group_jobs(jobs)[1] if (runs := report.lines_of(group.jobs))}
            if measure is not None:
                _check(measure, _OF_ROUNDS, "measure", "rounds have no such figure")
            figure = sweep_figure(curves, quantities=[_OF_ROUNDS[measure]] if measure else [])
            if figure is None:
                raise ConfigError(f"{self.folder}: nothing to draw: the runs' folders or that figure are missing.")
            return figure
        _check(x, map(str, jobs.shown), "x", "no such key varies")
        others = [lines] if lines else _varying(jobs, without=x)
        for name in others:
            _check(name, map(str, jobs.shown), "lines", "no such key varies")
        _refuse_mixed(jobs, [x, *others])
        shown = self._measure(measure)
        drawn = {
            _line_name(others, names): [(values[0], shown.spread(there)) for values, there in of.by([x]).items()]
            for names, of in jobs.by(others).items()
        }
        joined = len(drawn) <= report.MOST_LINES
        if not joined:
            drawn = {"": [point for line in drawn.values() for point in line]}
        return settings_figure(drawn, shown.title, x, shown.bounds, joined)

    @cached_property
    def _jobs(self) -> Jobs:
        return Jobs.read(self.folder / SUMMARY)

    def _where(self, where: Mapping[str, Any] | None) -> Jobs:
        wanted = {key: str(value) for key, value in (where or {}).items()}
        # A strategy goes by its key and by the name that tables show.
        known = (self._jobs.keys.to_dict("records"), self._jobs.shown.to_dict("records"))
        pairs = enumerate(zip(*known, strict=True))
        places = [n for n, both in pairs if all(v in [one.get(key) for one in both] for key, v in wanted.items())]
        if not places:
            text = ", ".join(f"{key}={value}" for key, value in wanted.items()) or "the sweep"
            raise ConfigError(f"where: {text}: no job has these.")
        return self._jobs.take(places)

    def _measure(self, name: str | None) -> report.SweepMeasure:
        return report.main_measure(self._jobs) if name is None else self._chosen([name], "measure")[0]

    def _chosen(self, names: Sequence[str], what: str = "columns") -> list[report.SweepMeasure]:
        known = report.measures_of(self._jobs)
        for name in names:
            _check(name, known, what, f"the sweep has no such measure{' or key' if what == 'columns' else ''}")
        return [known[name] for name in names or known]

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
    from florets.studies.go_on import Engine
    from florets.studies.sweep.launch import run_sweep

    caller = Path.cwd()
    import_from(caller)
    texts = choices_of(*with_choices(experiment, keys))
    code, folder = run_sweep(texts, caller, Engine(engine.run, engine.resume), keep)
    if code == INTERRUPTED:
        raise KeyboardInterrupt(f"the sweep's folder is {folder}; go on with the same call and keep=True")
    return Sweep(folder)


def with_choices(experiment: Any, keys: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a preset, or several, and keys with several values, with clients' data in their folder."""
    experiment, keys, federation = clients_of(experiment, keys, several=True)
    # A list is one value here, not several to try.
    own = {name: [keys[name]] for name in (() if federation is None else federation.settings)}
    return experiment, {**keys, **own}


def _varying(jobs: Jobs, without: str | None = None) -> list[str]:
    keys = [str(key) for key in jobs.shown if key != without and jobs.shown[key].nunique() > 1]
    # A table needs rows: with nothing else that varies the strategy's.
    return keys or [key for key in (STRATEGY,) if key != without]


def _line_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """Return the name of a line: a strategy's, and other keys without their groups."""
    pairs = zip(keys, values, strict=True)
    return ", ".join(value if key == STRATEGY else f"{key.rpartition('.')[2]}={short(value)}" for key, value in pairs)


def _refuse_mixed(jobs: Jobs, keys: Sequence[str]) -> None:
    """Refuse means over jobs that differ in more than their seed."""
    for of in jobs.by(keys).values():
        for key in of.shown.columns.difference(list(keys), sort=False):
            if len(values := of.shown[key].unique()) > 1:
                chosen = f"where={{{key!r}: {values[0]!r}}}"
                raise ConfigError(
                    f"{key}: varies too ({', '.join(values)}); name it in rows or columns, or choose with {chosen}."
                )


def _check(name: str, known: Iterable[str], what: str, problem: str) -> None:
    names = list(dict.fromkeys(known))
    if name not in names:
        raise ConfigError(f"{what}={name}: {problem}.{did_you_mean(name, names)} There are: {', '.join(names)}.")


def _note(jobs: Jobs) -> str:
    return f"{jobs.failed} of {len(jobs)} jobs failed." if jobs.failed else ""


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
    """Run an experiment with different settings, and name the best by its validation figure, never by test data.

    The figure is the experiment's ``measure``. Without ``task.validation_fraction`` a fifth of each client's training
    records is held out. The last line has the best setting, the result as its ``best``.

    Parameters
    ----------
    experiment : str, Federation or data, optional
        Name of the preset; by default the quickstart. Or clients' data, as ``clients=``.
    trials : int, optional
        Number of settings that are tried; by default 20, or with a grid all combinations.
    sampler : {"tpe", "random", "grid"}
        How the next setting is proposed: tpe learns from the earlier ones (Optuna), random draws (Optuna, the extra
        ``tune``), grid runs all combinations, as the others do if they are at most ``trials``; with several seeds
        their mean counts.
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
    from florets.studies.go_on import Engine
    from florets.studies.sweep.launch import run_sweep
    from florets.studies.tune import tune_overrides

    texts = choices_of(*with_choices(experiment, keys)) + [
        f"{key}={_interval(*ends)}" for key, ends in (intervals or {}).items()
    ]
    search = tune_overrides(texts, trials, sampler, n_jobs)
    code, folder = run_sweep(search, Path.cwd(), Engine(engine.run, engine.resume))
    if code == INTERRUPTED:
        raise KeyboardInterrupt(f"the trials that ran are in {folder}")
    return Sweep(folder)


def _interval(low: float, high: float) -> str:
    is_wide = isinstance(low, float) and low > 0 and high >= 10 * low
    text = f"interval({low},{high})"
    return f"tag(log,{text})" if is_wide else text
