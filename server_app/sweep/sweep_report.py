"""Report of a sweep: a row per job, a table of means over seeds, and curves over rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from florets.reports.console import counted
from florets.reports.folder import naming, write_whole
from florets.reports.statistics import LEGEND
from florets.reports.summary import RoundLine, read_lines
from florets.reports.tables import Cell, ResultTable, markdown_table, tabular
from florets.server_app.sweep.sweep_compare import comparison
from florets.server_app.sweep.sweep_csv import SUMMARY, write_jobs
from florets.server_app.sweep.sweep_groups import Group, JobResult, group_jobs, job_name, short
from florets.server_app.sweep.sweep_measures import mean_std, measures_of

MOST_LINES = 8
"""More curves than this cannot be distinguished in one figure."""


def summary_markdown(jobs: Sequence[JobResult]) -> str:
    """Return the sweep's summary: what its jobs share, the table of means, and the failures."""
    common, groups = group_jobs(jobs)
    failed = [job for job in jobs if job.summary is None]
    parts = []
    # The strategy has its column in the table, be it the same for all; where and how it is shown says nothing.
    shared = [f"{key}={value}" for key, value in common.items() if key not in ("strategy", "results_dir", "quiet")]
    if shared:
        parts.append("Sweep with " + ", ".join(shared))
    if any(group.runs for group in groups):
        parts.append(markdown_table(means(groups).texts))
        parts.append(
            "Mean ± sample standard deviation over runs that differ only in their seed; "
            "'(2 of 3)': only these have a value."
        )
        if compared := comparison(groups):
            parts += [markdown_table(compared), LEGEND]
    warned = [(job_name(job), text) for job in jobs if job.summary is not None for text in job.summary.warnings]
    if warned:
        parts.append("Warnings:")
        parts.append("\n".join(f"- {name}: {text}" for name, text in warned))
    if failed:
        parts.append(f"{len(failed)} of {counted(len(jobs), 'job')} failed:")
        parts.append(
            "\n".join(f"- {job_name(job)}: {' '.join((job.error or 'no reason').split())}" for job in failed)
        )
    return "\n\n".join(parts or ["The sweep had no jobs."]) + "\n"


def means(
    groups: Sequence[Group], names: Sequence[str] = (), *, titles: bool = False, marks: bool = False
) -> ResultTable:
    """Return the table of means.

    Parameters
    ----------
    names : sequence of str
        Columns beside the strategy, in their order; none: all of which some run has a value.
    titles : bool
        Whether strategies have the names that papers give them.
    marks : bool
        Whether the best of each column is marked.

    Raises
    ------
    ValueError
        If there is no such column.
    """
    shown = [group for group in groups if group.runs]
    jobs = [job for group in groups for job in group.jobs]
    measures = measures_of(jobs)
    columns: dict[str, tuple[str, Callable[[Group], Cell]]] = {"runs": ("runs", _num_runs)}
    if len({run.rounds for group in shown for run in group.runs}) > 1:
        columns["rounds"] = ("rounds", _rounds)
    columns |= {name: (measure.title, measure.cell) for name, measure in measures.items()}
    if unknown := [name for name in names if name not in columns]:
        raise ValueError(f"{', '.join(unknown)}: the sweep has no such column. It has: {', '.join(columns)}.")
    chosen = list(names or columns)
    table = ResultTable(
        "strategy",
        tuple(group.title if titles else group.label for group in shown),
        tuple(columns[name][0] for name in chosen),
        tuple(tuple(columns[name][1](group) for name in chosen) for group in shown),
    )
    return table.marked([measures[name].higher if name in measures else None for name in chosen]) if marks else table


def _rounds(group: Group) -> Cell:
    rounds = {run.rounds for run in group.runs}
    return Cell(str(*rounds) if len(rounds) == 1 else mean_std([run.rounds for run in group.runs], "{:.1f}"))


def _num_runs(group: Group) -> Cell:
    runs, jobs = len(group.runs), len(group.jobs)
    return Cell(f"{runs}" if runs == jobs else f"{runs} of {jobs}")


def summary_latex(jobs: Sequence[JobResult]) -> str:
    """Return the tables of the sweep's summary as LaTeX, to be included in a page of one's own."""
    groups = group_jobs(jobs)[1]
    lines = ["% Mean and sample standard deviation over runs that differ only in their seed"]
    if any(group.runs for group in groups):
        lines.append(means(groups, titles=True, marks=True).latex().rstrip())
    if compared := comparison(groups, titles=True):
        lines += ["", f"% {LEGEND}", *tabular(compared)]
    return "\n".join(lines) + "\n"


def _draw(folder: Path, groups: Sequence[Group]) -> None:
    from florets.reports.run_figures import sweep_figure  # matplotlib takes a second that only the end needs

    drawn = [(group, lines) for group in groups if (lines := lines_of(group))]
    figures: dict[str, dict[str, Sequence[Sequence[RoundLine]]]] = {}
    for group, runs in drawn:
        # Few groups share one figure; of many, each setting gets one that compares its strategies.
        title = "" if len(drawn) <= MOST_LINES else " ".join(f"{k}={short(v)}" for k, v in group.settings.items())
        figures.setdefault(title, {})[group.title if not title else group.strategy_title] = runs
    if len(figures) > 1:
        # One line alone compares nothing: of a hundred settings there would be a hundred pictures.
        figures = {title: curves for title, curves in figures.items() if len(curves) > 1}
    for number, (title, curves) in enumerate(figures.items(), start=1):
        name = "curves.png" if len(figures) == 1 else f"curves-{number}.png"
        if figure := sweep_figure(curves, title):
            figure.save(folder / name)


def lines_of(group: Group) -> list[list[RoundLine]]:
    """Return the rounds of a group's runs; nothing where one's folder is gone."""
    folders = [Path(run.folder) for run in group.runs]
    if not all((folder / "rounds.jsonl").is_file() for folder in folders):
        return []
    return [read_lines(folder) for folder in folders]


def write_sweep(folder: Path, jobs: list[JobResult]) -> str:
    """Write ``summary.csv``, ``summary.md``, ``summary.tex`` and the curves of a sweep; return the Markdown.

    Parameters
    ----------
    folder : Path
        The sweep's own folder; made where it is missing.
    jobs : list of JobResult
        This command's jobs, in their order; failed ones are listed below the table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_jobs(folder / SUMMARY, jobs)
    text = summary_markdown(jobs)
    write_whole(folder / "summary.md", text)
    write_whole(folder / "summary.tex", summary_latex(jobs))
    with naming(folder):
        _draw(folder, group_jobs(jobs)[1])
    return text
