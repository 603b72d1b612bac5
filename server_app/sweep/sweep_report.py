"""Report of a sweep: a row per job, a table of means over seeds, and curves over rounds."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from florets.server_app.console import counted
from florets.server_app.results.folder import naming, whole_file, write_whole
from florets.server_app.results.latex import tabular
from florets.server_app.results.statistics import Spread
from florets.server_app.results.summary import RoundLine, RunSummary
from florets.server_app.sweep.sweep_compare import LEGEND, comparison
from florets.server_app.sweep.sweep_groups import Group, JobResult, group_jobs, job_name

MOST_LINES = 8
"""More curves than this cannot be told apart in one figure."""


TRUTH = {
    "final_model_error": "model error",
    "final_cluster_error": "cluster error",
    "final_cluster_loss": "cluster loss",
}
"""Columns of nearness to the truth."""


def mean_std(
    values: Sequence[float | None], form: str = "{:.2f}", of: int | None = None, always: bool = False
) -> str:
    """Return "mean ± sample std" of the values that are not None, of one the value alone; "-" where there is none.

    Where some of ``of`` runs have no value (never recovered, say), and ``always`` in any case, the text tells how
    many have one.
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-" if of is None or not always else f"- (0 of {of})"
    spread = Spread.of(known)
    text = form.format(spread.mean)
    if len(known) > 1:
        text += f" ± {form.format(spread.deviation)}"
    return text if of is None or (len(known) == of and not always) else f"{text} ({len(known)} of {of})"


def _figure(
    name: str, form: str = "{:.2f}", factor: float = 1.0, told: bool = True, always: bool = False
) -> Callable[[Group], str]:
    """Return the cell of one figure of the summaries; `told`: where some runs lack it, how many have it."""

    def cell(group: Group) -> str:
        values = [getattr(run, name) for run in group.runs]
        scaled = [None if value is None else factor * value for value in values]
        return mean_std(scaled, form, len(group.runs) if told else None, always)

    return cell


def _of_placed(cell: Callable[[Group], str]) -> Callable[[Group], str]:
    """Let a mean over the clients that have a model say how many were not tested because they have none."""

    def with_unplaced(group: Group) -> str:
        unplaced = [run.final_unplaced for run in group.runs]
        return cell(group) + (f", {mean_std(unplaced, '{:.1f}')} clients not tested" if any(unplaced) else "")

    return with_unplaced


def _rounds(group: Group) -> str:
    rounds = {run.rounds for run in group.runs}
    return str(*rounds) if len(rounds) == 1 else mean_std([run.rounds for run in group.runs], "{:.1f}")


def _num_runs(group: Group) -> str:
    runs, jobs = len(group.runs), len(group.jobs)
    return f"{runs}" if runs == jobs else f"{runs} of {jobs}"


def _columns(runs: Sequence[RunSummary]) -> dict[str, tuple[str, Callable[[Group], str]]]:
    """Return head and cell of each column of the table, by its name; of what no run has there is none."""

    def known(name: str) -> bool:
        return any(getattr(run, name) is not None for run in runs)

    columns: dict[str, tuple[str, Callable[[Group], str]]] = {
        "strategy": ("strategy", lambda group: group.label),
        "runs": ("runs", _num_runs),
    }
    if len({run.rounds for run in runs}) > 1:
        columns["rounds"] = ("rounds", _rounds)
    accuracy = known("final_accuracy")
    if accuracy:
        columns["accuracy"] = ("accuracy %", _of_placed(_figure("final_accuracy", factor=100)))
    if known("final_worst_tenth"):
        columns["worst_tenth"] = ("worst 10 % of clients", _figure("final_worst_tenth", factor=100))
    # A loss says little beside an accuracy: it is shown where some run has nothing else.
    if any(run.final_accuracy is None for run in runs):
        columns["loss"] = ("loss", _of_placed(_figure("final_loss", "{:.4g}")))
    if known("final_tuned_loss"):
        tuned = _figure("final_tuned_accuracy", "{:.1f}", 100) if accuracy else _figure("final_tuned_loss", "{:.4g}")
        columns["tuned"] = (f"fine-tuned {'%' if accuracy else 'loss'}", tuned)
    for name, title in TRUTH.items():
        if known(name):
            columns[name.removeprefix("final_")] = (title, _figure(name, "{:.4g}"))
    columns |= {
        "ari": ("ARI", _figure("final_ari")),
        "ari_at_10": ("ARI at 10", _figure("ari_at_10")),
        "rounds_to_ari_90": ("ARI ≥ 0.9 from", _figure("first_round_ari_90", "{:.1f}", always=True)),
        "stable_from": ("stable from", _figure("round_of_stability", "{:.1f}")),
        "megabytes": ("MB", _figure("megabytes", "{:.1f}", told=False)),
    }
    if any(run.client_seconds for run in runs):
        columns["client_seconds"] = ("client s", _figure("client_seconds", "{:.1f}", told=False))
    if any(run.gradient_passes for run in runs):
        passes = _figure("gradient_passes", "{:,.0f}", 1e-3, told=False)
        columns["gradient_passes"] = ("1,000 gradient passes", passes)
    return columns | {"seconds": ("seconds", _figure("seconds", "{:.1f}", told=False))}


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of them the head, as a Markdown table that also reads well in a terminal."""
    # What would end a cell.
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


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
        parts.append(markdown_table(means(groups)))
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


def means(groups: Sequence[Group], names: Sequence[str] = ()) -> list[list[str]]:
    """Return the table of means, the first row its head.

    Parameters
    ----------
    names : sequence of str
        Columns beside the strategy, in their order; none: all of which some run has a value.

    Raises
    ------
    ValueError
        If there is no such column.
    """
    columns = _columns([run for group in groups for run in group.runs])
    if unknown := [name for name in names if name not in columns]:
        raise ValueError(f"{', '.join(unknown)}: the sweep has no such column. It has: {', '.join(columns)}.")
    chosen = [columns[name] for name in (("strategy", *names) if names else columns)]
    rows = [[cell(group) for _, cell in chosen] for group in groups if group.runs]
    return [[title for title, _ in chosen], *rows]


def summary_latex(jobs: Sequence[JobResult]) -> str:
    """Return the tables of the sweep's summary as LaTeX, to be included in a page of one's own."""
    groups = group_jobs(jobs)[1]
    lines = ["% Mean and sample standard deviation over runs that differ only in their seed"]
    if any(group.runs for group in groups):
        lines += tabular(means(groups))
    if compared := comparison(groups):
        lines += ["", f"% {LEGEND}", *tabular(compared)]
    return "\n".join(lines) + "\n"


def _write_csv(path: Path, jobs: Sequence[JobResult]) -> None:
    runs = [job.summary for job in jobs if job.summary is not None]
    scores = {f"{name}.{figure}": None for run in runs for name, told in run.final_metrics.items() for figure in told}
    names = [*(field.name for field in fields(RunSummary) if field.name != "final_metrics"), *scores]
    keys = [key for key in dict.fromkeys(k for job in jobs for k in job.overrides) if key not in names]
    with whole_file(path) as file:
        writer = csv.DictWriter(file, [*keys, *names, "error"], lineterminator="\n")
        writer.writeheader()
        for job in jobs:
            # A failed job has no summary: its overrides fill the columns of the same name (strategy, seed).
            row: dict[str, object] = dict(job.overrides)
            row["folder"] = "" if job.folder is None else str(job.folder)
            if job.summary is not None:
                row.update({**asdict(job.summary), "warnings": "; ".join(job.summary.warnings)})
                # A column for each figure of each score.
                metrics: dict[str, dict[str, object]] = row.pop("final_metrics")  # type: ignore[assignment]
                row.update({f"{name}.{figure}": v for name, told in metrics.items() for figure, v in told.items()})
            writer.writerow({**row, "error": job.error or ""})


def read_lines(folder: Path) -> list[RoundLine]:
    """Return the rounds of a run, as its ``rounds.jsonl`` has them."""
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]


def _draw(folder: Path, groups: Sequence[Group]) -> None:
    from florets.server_app.sweep.sweep_plots import draw_sweep  # matplotlib takes a second that only the end needs

    drawn = [
        (group, [read_lines(Path(run.folder)) for run in group.runs])
        for group in groups
        if group.runs and all((Path(run.folder) / "rounds.jsonl").is_file() for run in group.runs)
    ]
    if not drawn:
        return
    figures: dict[str, dict[str, list[list[RoundLine]]]] = {}
    for group, runs in drawn:
        # Few groups share one figure; of many, each setting gets one that compares its strategies.
        title = "" if len(drawn) <= MOST_LINES else " ".join(f"{k}={v}" for k, v in group.settings.items())
        figures.setdefault(title, {})[group.label if not title else group.name] = runs
    for number, (title, curves) in enumerate(figures.items(), start=1):
        name = "curves.png" if len(figures) == 1 else f"curves-{number}.png"
        draw_sweep(curves, folder / name, title)


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
    _write_csv(folder / "summary.csv", jobs)
    text = summary_markdown(jobs)
    write_whole(folder / "summary.md", text)
    write_whole(folder / "summary.tex", summary_latex(jobs))
    with naming(folder):
        _draw(folder, group_jobs(jobs)[1])
    return text
