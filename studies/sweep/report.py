"""Report of a sweep: means over seeds, the best setting by validation data (never by test data), and curves."""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from florets.reports.console import counted
from florets.reports.folder import naming, write_whole
from florets.reports.protections import spent_together
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.statistics import ARI, LEGEND, PERCENT, Compared, Spread, compare, p_text
from florets.reports.summary import RoundLine, RunSummary, read_lines
from florets.reports.tables import Cell, ResultTable, markdown_table
from florets.studies.sweep.jobs import STRATEGY, Group, Job, finished, group_jobs, write_jobs


@dataclass(frozen=True)
class SweepMeasure:
    """One figure of a run, times `factor`; `bounds` is its range, None where it has no two ends.

    `higher`: whether a higher value is better; None: neither is, or as with seconds it depends on the machine.
    """

    title: str
    read: Callable[[RunSummary], float | None]
    form: str = "{:.2f}"
    factor: float = 1.0
    higher: bool | None = None
    bounds: tuple[float, float] | None = None

    def by_seed(self, group: Group) -> dict[int, float]:
        """Return the finite values that finished jobs have, by seed."""
        found = {run.seed: self.read(run) for run in group.runs}
        return {
            seed: self.factor * value for seed, value in found.items() if value is not None and math.isfinite(value)
        }

    def cell(self, group: Group) -> Cell:
        """Return the mean over jobs as a table shows it, with how many have a value where some have none."""
        spread, runs = Spread.of(list(self.by_seed(group).values())), len({run.seed for run in group.runs})
        text = mean_std(spread, self.form)
        return Cell(text if spread.number == runs else f"{text} ({spread.number} of {runs})", spread.mean)


def mean_std(spread: Spread, form: str = "{:.2f}") -> str:
    """Return "mean ± sample std", of a single value the value, of none "-"."""
    text = form.format(spread.mean) if spread.number else "-"
    return text if spread.number < 2 else f"{text} ± {form.format(spread.deviation)}"


_ACCURACY: dict[str, Any] = {"factor": 100.0, "higher": True, "bounds": PERCENT}
_NUMBER: dict[str, Any] = {"form": "{:.4g}", "higher": False}
_MEASURES = {
    "accuracy": SweepMeasure("accuracy %", attrgetter("final_accuracy"), **_ACCURACY),
    "worst_tenth": SweepMeasure("worst 10 % of clients", attrgetter("final_worst_tenth"), **_ACCURACY),
    "loss": SweepMeasure("loss", attrgetter("final_loss"), **_NUMBER),
    "validation": SweepMeasure("validation", attrgetter("final_validation"), "{:.4g}"),
    "tuned": SweepMeasure("fine-tuned %", attrgetter("final_tuned_accuracy"), **_ACCURACY),
    "tuned_loss": SweepMeasure("fine-tuned loss", attrgetter("final_tuned_loss"), **_NUMBER),
    "model_error": SweepMeasure("model error", attrgetter("final_model_error"), **_NUMBER),
    "cluster_error": SweepMeasure("cluster error", attrgetter("final_cluster_error"), **_NUMBER),
    "cluster_loss": SweepMeasure("cluster loss", attrgetter("final_cluster_loss"), **_NUMBER),
    "ari": SweepMeasure("ARI", attrgetter("final_ari"), higher=True, bounds=ARI),
    "rounds_to_ari_90": SweepMeasure("ARI ≥ 0.9 from", attrgetter("first_round_ari_90"), "{:.1f}", higher=False),
    "stable_from": SweepMeasure("stable from", attrgetter("round_of_stability"), "{:.1f}"),
    "megabytes": SweepMeasure("MB", lambda run: run.bytes_down + run.bytes_up, "{:.1f}", 1e-6, higher=False),
    # Of runs in which nothing was counted it is 0.
    "gradient_passes": SweepMeasure(
        "1,000 gradient passes", lambda run: run.gradient_passes or None, "{:,.0f}", 1e-3, higher=False
    ),
    "seconds": SweepMeasure("seconds", attrgetter("seconds"), "{:.1f}"),
}


def measures_of(jobs: Sequence[Job]) -> dict[str, SweepMeasure]:
    """Return the figures of which some run has a value, by name, in the order of a table's columns."""
    runs = finished(jobs)
    found = {name: one for name, one in _MEASURES.items() if any(one.read(run) is not None for run in runs)}
    # Next to an accuracy, a loss says little: it is shown where some run has nothing else.
    if all(run.final_accuracy is not None for run in runs):
        found.pop("loss", None)
    if "tuned" in found:
        found.pop("tuned_loss", None)
    names = {job.measure for job in jobs if job.measure}
    if "validation" in found and len(names) == 1:
        found["validation"] = _validation(*names)
    return found


def main_measure(jobs: Sequence[Job]) -> SweepMeasure:
    """Return what runs are compared by: the accuracy where all have one, else the loss."""
    return _MEASURES["accuracy" if all(run.final_accuracy is not None for run in finished(jobs)) else "loss"]


def _validation(name: str) -> SweepMeasure:
    title, read = f"validation {name.replace('_', ' ')}", attrgetter("final_validation")
    if name in ("accuracy", "balanced_accuracy"):
        return SweepMeasure(f"{title} %", read, **_ACCURACY)
    return SweepMeasure(title, read, "{:.4g}", higher=HIGHER_IS_BETTER[name])


def compared(groups: Sequence[Group], measure: SweepMeasure) -> Sequence[Compared]:
    """Return the groups that have runs, each compared with the first of equal settings.

    With a single strategy, all are compared with the first group.
    """
    shown = [group for group in groups if group.runs]
    by_settings = len({group.strategy for group in shown}) > 1
    against = {}
    for group in shown:
        first = next(other for other in shown if not by_settings or other.settings == group.settings)
        if first is not group:
            against[group.label] = first.label
    return compare({group.label: measure.by_seed(group) for group in shown}, against, measure.bounds)


def comparison(jobs: Sequence[Job], groups: Sequence[Group]) -> list[list[str]]:
    """Return the groups' means with intervals and their differences from the first, the first row its head.

    Empty where no group has two runs.
    """
    if not any(len(group.runs) > 1 for group in groups):
        return []
    measure = main_measure(jobs)

    def form(value: float, sign: str = "-") -> str:
        return f"{value:{sign}.2f}" if measure.bounds else f"{value:{sign}.4g}"

    def interval(spread: Spread, sign: str = "-") -> str:
        return "" if spread.number < 2 else f"[{form(spread.low, sign)}, {form(spread.high, sign)}]"

    rows = [["strategy", measure.title, "interval", "compared with", "difference", "interval", "test"]]
    for one in compared(groups, measure):
        row = [one.name, form(one.spread.mean) if one.spread.number else "-", interval(one.spread), one.against]
        if between := one.difference if one.difference.number else None:
            row += [form(between.mean, "+"), interval(between, "+"), p_text(one.p_holm)]
        else:
            row += ["no equal seeds" if one.against else "", "", ""]
        rows.append(row)
    return rows


_TESTED = ("accuracy", "loss", "ari")


@dataclass(frozen=True)
class Best:
    """A setting that was chosen among so many `settings`.

    `overrides` are its keys as the command line gives them, with the seed only where there was one. `test` has its
    figures on test data, by name (`accuracy` from 0 to 1, `loss`, `ari`), which played no part in the choice.
    """

    overrides: dict[str, str]
    measure: str
    validation: Spread
    test: dict[str, Spread]
    settings: int

    @property
    def command(self) -> str:
        """The overrides as a shell takes them."""
        return shlex.join(f"{key}={value}" for key, value in self.overrides.items())

    @property
    def words(self) -> str:
        """The choice in one line."""
        # Next to an accuracy, a loss says little.
        shown = [name for name in self.test if name != "loss" or "accuracy" not in self.test]
        tests = [f"test {name.replace('ari', 'ARI')} {_value(name, self.test[name].mean)}" for name in shown]
        figures = ", ".join([f"validation {_value(self.measure, self.validation.mean)}", *tests])
        runs = "" if self.validation.number == 1 else f", means of {self.validation.number} seeds"
        by = f"validation {self.measure.replace('_', ' ')}"
        return f"Best of {counted(self.settings, 'setting')} by {by}: {self.command} ({figures}{runs})"


def best_of(jobs: Sequence[Job]) -> Best | None:
    """Return the setting with the best mean validation figure over its seeds; of equals the first.

    None with fewer than two settings, where the jobs have no validation data or different figures, and where no
    setting has a figure for each of its jobs: one that fails or diverges with one seed is not the best.
    """
    measures = {job.measure for job in jobs if job.summary is not None}
    groups = group_jobs(jobs)[1]
    if len(groups) < 2 or len(measures) != 1 or not (measure := measures.pop()):
        return None
    known = [(spread, group) for group in groups if (spread := _over_seeds(group, attrgetter("final_validation")))]
    if not known:
        return None
    choose = max if HIGHER_IS_BETTER[measure] else min
    validation, best = choose(known, key=lambda one: one[0].mean)
    tests = {name: spread for name in _TESTED if (spread := _over_seeds(best, attrgetter(f"final_{name}")))}
    several = len({job.overrides.get("seed") for job in best.jobs}) > 1
    left_out = ("quiet", "results_dir", *(["seed"] if several else []))
    overrides = {key: value for key, value in best.jobs[0].overrides.items() if key not in left_out}
    return Best(overrides, measure, validation, tests, len(groups))


def _over_seeds(group: Group, read: Callable[[RunSummary], float | None]) -> Spread | None:
    """Return a figure over the seeds, None where a job has none; a setting may have been proposed twice."""
    runs = finished(group.jobs)
    values = list({run.seed: read(run) for run in runs}.values())
    known = [value for value in values if value is not None]
    return Spread.of(known) if len(known) == len(values) and len(runs) == len(group.jobs) else None


def _value(name: str, value: float) -> str:
    if name in ("accuracy", "balanced_accuracy"):
        return f"{value:.1%}"
    return f"{value:.2f}" if name == "ari" else f"{value:.4g}"


MOST_LINES = 8
"""More curves than this cannot be distinguished in one figure."""


def summary_markdown(jobs: Sequence[Job]) -> str:
    """Return the sweep's summary: what its jobs share, the table of means, and the failures."""
    common, groups = group_jobs(jobs)
    parts = []
    # The strategy has its column in the table, be it the same for all; where and how it is shown says nothing.
    shared = [f"{key}={value}" for key, value in common.items() if key not in (STRATEGY, "results_dir", "quiet")]
    if shared:
        parts.append("Sweep with " + ", ".join(shared))
    if runs := finished(jobs):
        parts.append(markdown_table(means(jobs).texts))
        parts.append(
            "Mean ± sample standard deviation over runs that differ only in their seed; "
            "'(2 of 3)': only these have a value."
        )
        if rows := comparison(jobs, groups):
            parts += [markdown_table(rows), LEGEND]
        parts.append(spent_together(run.folder for run in runs))
    warned = [f"- {job.name}: {text}" for job in jobs if job.summary for text in job.summary.warnings]
    if warned:
        parts += ["Warnings:", "\n".join(warned)]
    if failed := [f"- {job.name}: {' '.join(job.error.split())}" for job in jobs if job.summary is None]:
        parts += [f"{len(failed)} of {counted(len(jobs), 'job')} failed:", "\n".join(failed)]
    return "\n\n".join(filter(None, parts)) + "\n"


def means(jobs: Sequence[Job], names: Sequence[str] = (), *, titles: bool = False) -> ResultTable:
    """Return the table of means.

    `names`: columns next to the strategy, in their order; none: all of which some run has a value. `titles`: whether
    strategies have the names that papers give them.
    """
    shown = [group for group in group_jobs(jobs)[1] if group.runs]
    measures = measures_of(jobs)
    columns: dict[str, tuple[str, Callable[[Group], Cell]]] = {"runs": ("runs", _num_runs)}
    if len({run.rounds for run in finished(jobs)}) > 1:
        rounds = SweepMeasure("rounds", attrgetter("rounds"), "{:.1f}")
        columns["rounds"] = (rounds.title, rounds.cell)
    columns |= {name: (measure.title, measure.cell) for name, measure in measures.items()}
    chosen = list(names or columns)
    return ResultTable(
        STRATEGY,
        tuple(group.title if titles else group.label for group in shown),
        tuple(columns[name][0] for name in chosen),
        tuple(tuple(columns[name][1](group) for name in chosen) for group in shown),
    )


def _num_runs(group: Group) -> Cell:
    runs, jobs = len(group.runs), len(group.jobs)
    return Cell(f"{jobs}" if runs == jobs else f"{runs} of {jobs}")


def _draw(folder: Path, groups: Sequence[Group]) -> None:
    from florets.reports.run_figures import sweep_figure  # matplotlib takes a second that only the end needs

    curves = {group.title: lines for group in groups if (lines := lines_of(group))}
    if 0 < len(curves) <= MOST_LINES and (figure := sweep_figure(curves)):
        figure.save(folder / "curves.png")


def lines_of(group: Group) -> list[list[RoundLine]]:
    """Return the rounds of finished jobs; nothing where the folder of one is gone."""
    folders = [Path(run.folder) for run in group.runs]
    are_there = all((folder / "rounds.jsonl").is_file() for folder in folders)
    return list(map(read_lines, folders)) if are_there else []


def write_sweep(folder: Path, jobs: Sequence[Job]) -> str:
    """Write the tables, the summary and the curves of a sweep into its folder; return the summary as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    write_jobs(folder, jobs)
    text = summary_markdown(jobs)
    write_whole(folder / "summary.md", text)
    with naming(folder):
        _draw(folder, group_jobs(jobs)[1])
    return text
