"""Report of a sweep: a row per job, a table of means over seeds, and curves over rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.reports.console import counted
from florets.reports.folder import naming, write_whole
from florets.reports.protections import spent_together
from florets.reports.scores import HIGHER_IS_BETTER, WORST
from florets.reports.statistics import ARI, LEGEND, PERCENT, Compared, Spread, compare, p_text
from florets.reports.summary import RoundLine, read_lines
from florets.reports.tables import Cell, ResultTable, markdown_table
from florets.studies.sweep.jobs import (
    MEASURE,
    STRATEGY,
    SUMMARY,
    Group,
    Jobs,
    figure_column,
    group_jobs,
)

if TYPE_CHECKING:
    import pandas as pd

TRUTH = {
    "final_model_error": "model error",
    "final_cluster_error": "cluster error",
    "final_cluster_loss": "cluster loss",
}
"""Columns of nearness to the truth."""

VALIDATION, _OF_VALIDATION = "validation", "final_validation"


@dataclass(frozen=True)
class SweepMeasure:
    """One figure of a run.

    Attributes
    ----------
    form, factor
        Format of a number, and what a value is multiplied by before.
    higher
        Whether a higher value is better; None: neither is, or as with seconds it depends on the machine.
    bounds
        Range of the multiplied value, None where it has no two ends.
    says_missing
        Whether a cell says how many runs have a value, where some have none.
    over_clients
        Whether it is a mean over the clients that have a model: a cell then says how many have none.
    """

    title: str
    field: str
    form: str = "{:.2f}"
    factor: float = 1.0
    higher: bool | None = None
    bounds: tuple[float, float] | None = None
    says_missing: bool = True
    always_says: bool = False
    over_clients: bool = False

    def __post_init__(self) -> None:
        figure_column(self.field)

    def values(self, jobs: Jobs) -> pd.Series[float]:
        """Return the values of the finished jobs, NaN where one has none or one that is not finite."""
        values = jobs.runs[self.field].astype("float64") * self.factor
        return values.where(values.abs() < math.inf)

    def by_seed(self, jobs: Jobs) -> dict[int, float]:
        """Return the values that jobs have, by seed."""
        values = self.values(jobs).dropna()
        return dict(zip(jobs.runs["seed"][values.index].astype(int), values, strict=True))

    def spread(self, jobs: Jobs) -> Spread:
        """Return the mean over jobs with its interval."""
        return Spread.of(list(self.by_seed(jobs).values()), self.bounds)

    def cell(self, jobs: Jobs) -> Cell:
        """Return the mean over jobs as a table shows it."""
        values, unplaced = self.values(jobs), jobs.runs["final_unplaced"]
        text = mean_std(values, self.form, len(values) if self.says_missing else None, self.always_says)
        if self.over_clients and unplaced.any():
            text += f", {mean_std(unplaced, '{:.1f}')} clients not tested"
        return Cell(text, float(values.mean()) if len(values) else math.nan)


def mean_std(values: Iterable[float], form: str = "{:.2f}", of: int | None = None, always: bool = False) -> str:
    """Return "mean ± sample std" of the values that are not NaN; of a single one the value, of none "-".

    Where some of ``of`` runs have no value (never recovered, say), and with ``always`` in any case, the text says how
    many have one.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "-" if of is None or not always else f"- (0 of {of})"
    spread = Spread.of(known)
    text = form.format(spread.mean)
    if len(known) > 1:
        text += f" ± {form.format(spread.deviation)}"
    return text if of is None or (len(known) == of and not always) else f"{text} ({len(known)} of {of})"


_ACCURACY: dict[str, Any] = {"factor": 100.0, "higher": True, "bounds": PERCENT}
_NUMBER: dict[str, Any] = {"form": "{:.4g}", "higher": False}
_COST: dict[str, Any] = {"form": "{:.1f}", "says_missing": False}


def measures_of(jobs: Jobs) -> dict[str, SweepMeasure]:
    """Return the figures of which some run has a value, by name, in the order of a table's columns."""
    runs, names = jobs.runs, set(jobs.runs[MEASURE].dropna())
    known = {name for name in runs if runs[name].notna().any()}
    # Next to an accuracy, a loss says little: it is shown where some run has nothing else.
    if runs["final_accuracy"].notna().all():
        known.discard("final_loss")
    if "final_accuracy" in known:
        tuned = SweepMeasure("fine-tuned %", "final_tuned_accuracy", **{**_ACCURACY, "form": "{:.1f}"})
    else:
        tuned = SweepMeasure("fine-tuned loss", "final_tuned_loss", **_NUMBER)
    found = {
        "accuracy": SweepMeasure("accuracy %", "final_accuracy", over_clients=True, **_ACCURACY),
        "worst_tenth": SweepMeasure("worst 10 % of clients", f"accuracy.{WORST}", **_ACCURACY),
        "loss": SweepMeasure("loss", "final_loss", over_clients=True, **_NUMBER),
        "validation": _validation(*names) if len(names) == 1 else SweepMeasure(VALIDATION, _OF_VALIDATION, "{:.4g}"),
        "tuned": tuned,
        **{name.removeprefix("final_"): SweepMeasure(title, name, **_NUMBER) for name, title in TRUTH.items()},
        "ari": SweepMeasure("ARI", "final_ari", higher=True, bounds=ARI),
        "ari_at_10": SweepMeasure("ARI at 10", "ari_at_10", higher=True, bounds=ARI),
        "rounds_to_ari_90": SweepMeasure(
            "ARI ≥ 0.9 from", "first_round_ari_90", "{:.1f}", higher=False, always_says=True
        ),
        "stable_from": SweepMeasure("stable from", "round_of_stability", "{:.1f}"),
        "megabytes": SweepMeasure("MB", "megabytes", higher=False, **_COST),
        "client_seconds": SweepMeasure("client s", "client_seconds", **_COST),
        "gradient_passes": SweepMeasure(
            "1,000 gradient passes", "gradient_passes", "{:,.0f}", 1e-3, higher=False, says_missing=False
        ),
        "seconds": SweepMeasure("seconds", "seconds", **_COST),
    }
    # Of runs of which nothing was counted these are 0.
    known -= {name for name in ("client_seconds", "gradient_passes") if not runs[name].any()}
    always = ("ari", "ari_at_10", "rounds_to_ari_90", "stable_from", "megabytes", "seconds")
    return {name: measure for name, measure in found.items() if measure.field in known or name in always}


def main_measure(jobs: Jobs) -> SweepMeasure:
    """Return what runs are compared by: the accuracy where all have one, else the loss."""
    if jobs.runs["final_accuracy"].notna().all():
        return SweepMeasure("accuracy %", "final_accuracy", **_ACCURACY)
    return SweepMeasure("loss", "final_loss", **_NUMBER)


def _validation(name: str) -> SweepMeasure:
    title = f"{VALIDATION} {name.replace('_', ' ')}"
    if name in ("accuracy", "balanced_accuracy"):
        return SweepMeasure(f"{title} %", _OF_VALIDATION, **_ACCURACY)
    return SweepMeasure(title, _OF_VALIDATION, "{:.4g}", higher=HIGHER_IS_BETTER[name])


def compared(groups: Sequence[Group], measure: SweepMeasure) -> Sequence[Compared]:
    """Return the groups that have runs, each compared with the first of equal settings.

    With a single strategy, all are compared with the first group.
    """
    shown = [group for group in groups if len(group.jobs.runs)]
    by_settings = len({group.strategy for group in shown}) > 1
    against = {}
    for group in shown:
        first = next(other for other in shown if not by_settings or other.settings == group.settings)
        if first is not group:
            against[group.label] = first.label
    return compare({group.label: measure.by_seed(group.jobs) for group in shown}, against, measure.bounds)


def comparison(jobs: Jobs, groups: Sequence[Group]) -> list[list[str]]:
    """Return the groups' means with intervals and their differences from the first, the first row its head.

    By accuracy, where all runs have one, else by the loss. Empty where no group has two runs.
    """
    if not any(len(group.jobs.runs) > 1 for group in groups):
        return []
    measure = main_measure(jobs)

    def form(value: float, sign: str = "-") -> str:
        return f"{value:{sign}.2f}" if measure.bounds else f"{value:{sign}.4g}"

    def interval(spread: Spread, sign: str = "-") -> str:
        return "" if spread.number < 2 else f"[{form(spread.low, sign)}, {form(spread.high, sign)}]"

    rows = [["strategy", measure.title, "interval", "compared with", "difference", "interval", "test"]]
    for one in compared(groups, measure):
        row = [one.name, form(one.spread.mean) if one.spread.number else "-", interval(one.spread)]
        row.append(one.against)
        if between := one.difference if one.difference.number else None:
            row += [form(between.mean, "+"), interval(between, "+"), p_text(one.p_holm)]
        else:
            row += ["no equal seeds" if one.against else "", "", ""]
        rows.append(row)
    return rows


MOST_LINES = 8
"""More curves than this cannot be distinguished in one figure."""


def summary_markdown(jobs: Jobs) -> str:
    """Return the sweep's summary: what its jobs share, the table of means, and the failures."""
    common, groups = group_jobs(jobs)
    parts = []
    # The strategy has its column in the table, be it the same for all; where and how it is shown says nothing.
    shared = [f"{key}={value}" for key, value in common.items() if key not in (STRATEGY, "results_dir", "quiet")]
    if shared:
        parts.append("Sweep with " + ", ".join(shared))
    if len(jobs.runs):
        parts.append(markdown_table(means(jobs, groups).texts))
        parts.append(
            "Mean ± sample standard deviation over runs that differ only in their seed; "
            "'(2 of 3)': only these have a value."
        )
        if compared := comparison(jobs, groups):
            parts += [markdown_table(compared), LEGEND]
    if len(jobs.runs) and (spent := spent_together(jobs.runs["folder"])):
        parts.append(spent)
    rows = list(zip(jobs.names, jobs.figures["warnings"], jobs.figures["error"], strict=True))
    warned = [f"- {name}: {text}" for name, texts, error in rows if error is None for text in texts]
    if warned:
        parts += ["Warnings:", "\n".join(warned)]
    if jobs.failed:
        parts.append(f"{jobs.failed} of {counted(len(jobs), 'job')} failed:")
        failed = [f"- {name}: {' '.join(error.split())}" for name, _, error in rows if error is not None]
        parts.append("\n".join(failed))
    return "\n\n".join(parts or ["The sweep had no jobs."]) + "\n"


def means(
    jobs: Jobs, groups: Sequence[Group], names: Sequence[str] = (), *, titles: bool = False, marks: bool = False
) -> ResultTable:
    """Return the table of means.

    `names`: columns next to the strategy, in their order; none: all of which some run has a value. `titles`: whether
    strategies have the names that papers give them. `marks`: whether the best of each column is marked.
    """
    shown = [group for group in groups if len(group.jobs.runs)]
    measures = measures_of(jobs)
    columns: dict[str, tuple[str, Callable[[Jobs], Cell]]] = {"runs": ("runs", _num_runs)}
    if jobs.runs["rounds"].nunique() > 1:
        columns["rounds"] = ("rounds", _rounds)
    columns |= {name: (measure.title, measure.cell) for name, measure in measures.items()}
    if unknown := [name for name in names if name not in columns]:
        raise ValueError(f"{', '.join(unknown)}: the sweep has no such column. It has: {', '.join(columns)}.")
    chosen = list(names or columns)
    table = ResultTable(
        STRATEGY,
        tuple(group.title if titles else group.label for group in shown),
        tuple(columns[name][0] for name in chosen),
        tuple(tuple(columns[name][1](group.jobs) for name in chosen) for group in shown),
    )
    return table.marked([measures[name].higher if name in measures else None for name in chosen]) if marks else table


def _rounds(jobs: Jobs) -> Cell:
    rounds = jobs.runs["rounds"]
    return Cell(f"{rounds.iloc[0]:.0f}" if rounds.nunique() == 1 else mean_std(rounds, "{:.1f}"))


def _num_runs(jobs: Jobs) -> Cell:
    return Cell(f"{len(jobs.runs)} of {len(jobs)}" if jobs.failed else f"{len(jobs)}")


def _draw(folder: Path, groups: Sequence[Group]) -> None:
    from florets.reports.run_figures import sweep_figure  # matplotlib takes a second that only the end needs

    curves = {group.title: lines for group in groups if (lines := lines_of(group.jobs))}
    if 0 < len(curves) <= MOST_LINES and (figure := sweep_figure(curves)):
        figure.save(folder / "curves.png")


def lines_of(jobs: Jobs) -> list[list[RoundLine]]:
    """Return the rounds of finished jobs; nothing where the folder of one is gone."""
    folders = [Path(folder or "") for folder in jobs.runs["folder"]]
    are_there = all((folder / "rounds.jsonl").is_file() for folder in folders)
    return list(map(read_lines, folders)) if are_there else []


def write_sweep(folder: Path, jobs: Jobs) -> str:
    """Write ``summary.csv``, ``summary.md`` and the curves of a sweep; return the Markdown.

    `folder`: the sweep's own folder; made where it is missing. `jobs`: this command's jobs, in their order; failed
    ones are listed below the table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs.write(folder / SUMMARY)
    text = summary_markdown(jobs)
    write_whole(folder / "summary.md", text)
    with naming(folder):
        _draw(folder, group_jobs(jobs)[1])
    return text
