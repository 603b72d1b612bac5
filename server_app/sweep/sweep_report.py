"""Report of a sweep: a row per job, a table of means over seeds, and curves over rounds."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, pstdev

from florets.server_app.console import counted
from florets.server_app.results.folder import naming, whole_file, write_whole
from florets.server_app.results.summary import RoundLine, RunSummary

MOST_LINES = 8
"""More curves than this cannot be told apart in one figure."""


_PARTICIPATION = "strategy.fraction_train"

TRUTH = {
    "final_model_error": "model error",
    "final_cluster_error": "cluster error",
    "final_cluster_loss": "cluster loss",
}
"""Columns of nearness to the truth."""


@dataclass(frozen=True)
class JobResult:
    """One job of a sweep.

    Parameters
    ----------
    overrides : dict of str to str
        What the command gave for this job.
    folder : Path or None
        The run's folder, None where the job came to none.
    summary : RunSummary or None
        None where the job failed.
    error : str or None
        Why it failed.
    participation : float or None
        Fraction of the clients that a round samples; None where the job came to no configuration.
    """

    overrides: dict[str, str]
    folder: Path | None
    summary: RunSummary | None
    error: str | None
    participation: float | None = None


@dataclass(frozen=True)
class Group:
    """The jobs that differ in nothing but the seed; `sampled` tells the participation where others have another."""

    strategy: str
    settings: dict[str, str]
    jobs: list[JobResult]
    sampled: str = ""

    @property
    def name(self) -> str:
        """The strategy, and what a comparison with the others must know of it."""
        return f"{self.strategy} ({self.sampled})" if self.sampled else self.strategy

    @property
    def label(self) -> str:
        """Name the group: its strategy, and what else varies within the sweep."""
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.settings.items())])

    @property
    def runs(self) -> list[RunSummary]:
        """The summaries of the jobs that came to an end."""
        return [job.summary for job in self.jobs if job.summary is not None]


def group_jobs(jobs: Sequence[JobResult]) -> tuple[dict[str, str], list[Group]]:
    """Group jobs that are equal but for the seed, in the order of their first job.

    Returns
    -------
    (dict, list of Group)
        The overrides that all jobs have in common, and the groups; a group's ``settings`` are what varies.
    """
    keys = list(dict.fromkeys(key for job in jobs for key in job.overrides if key != "seed"))
    common = {
        key: jobs[0].overrides[key]
        for key in keys
        if all(job.overrides.get(key) == jobs[0].overrides.get(key) for job in jobs)
    }
    gathered: dict[tuple[str | None, ...], list[JobResult]] = {}
    for job in jobs:
        gathered.setdefault(tuple(job.overrides.get(key) for key in keys), []).append(job)
    groups = []
    mixed = len({job.participation for job in jobs if job.participation is not None}) > 1
    for same in gathered.values():
        first = same[0].overrides
        known = [job.summary.strategy for job in same if job.summary is not None]
        strategy = known[0] if known else first.get("strategy", "default strategy")
        varying = [key for key in keys if key not in common and key != "strategy" and key in first]
        share = next((job.participation for job in same if job.participation is not None), 1.0)
        # Given by hand the key stands in the label.
        told = mixed and share < 1.0 and _PARTICIPATION not in first
        sampled = f"{100 * share:.3g} % of the clients a round" if told else ""
        groups.append(Group(strategy, {key: first[key] for key in varying}, same, sampled))
    return common, groups


def mean_std(values: Sequence[float | None], form: str = "{:.2f}", of: int | None = None) -> str:
    """Return "mean ± population std" of the values that are not None; "-" where there is none.

    Where some of ``of`` runs have no value (never recovered, say), the text tells how many have one.
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    text = f"{form.format(fmean(known))} ± {form.format(pstdev(known))}"
    return text if of is None or len(known) == of else f"{text} ({len(known)} of {of})"


def _figure(name: str, form: str = "{:.2f}", factor: float = 1.0, told: bool = True) -> Callable[[Group], str]:
    """Return the cell of one figure of the summaries; `told`: where some runs lack it, how many have it."""

    def cell(group: Group) -> str:
        values = [getattr(run, name) for run in group.runs]
        scaled = [None if value is None else factor * value for value in values]
        return mean_std(scaled, form, len(group.runs) if told else None)

    return cell


def _of_placed(cell: Callable[[Group], str]) -> Callable[[Group], str]:
    """Let a mean over the clients that have a model say how many have none."""

    def with_unplaced(group: Group) -> str:
        unplaced = [run.final_unplaced for run in group.runs]
        return cell(group) + (f", {mean_std(unplaced, '{:.1f}')} clients not placed" if any(unplaced) else "")

    return with_unplaced


def _rounds(group: Group) -> str:
    rounds = {run.rounds for run in group.runs}
    return str(*rounds) if len(rounds) == 1 else mean_std([run.rounds for run in group.runs], "{:.1f}")


def _num_runs(group: Group) -> str:
    runs, jobs = len(group.runs), len(group.jobs)
    return f"{runs}" if runs == jobs else f"{runs} of {jobs}"


def _columns(runs: Sequence[RunSummary]) -> list[tuple[str, Callable[[Group], str]]]:
    """Return head and cell of each column of the table; of what no run has there is none."""

    def known(name: str) -> bool:
        return any(getattr(run, name) is not None for run in runs)

    columns: list[tuple[str, Callable[[Group], str]]] = [("strategy", lambda group: group.label), ("runs", _num_runs)]
    if len({run.rounds for run in runs}) > 1:
        columns.append(("rounds", _rounds))
    accuracy = known("final_accuracy")
    if accuracy:
        columns.append(("accuracy %", _of_placed(_figure("final_accuracy", factor=100))))
    if known("final_worst_tenth"):
        columns.append(("worst 10 % of clients", _figure("final_worst_tenth", factor=100)))
    # A loss says little beside an accuracy: it is shown where some run has nothing else.
    if any(run.final_accuracy is None for run in runs):
        columns.append(("loss", _of_placed(_figure("final_loss", "{:.4g}"))))
    if known("final_tuned_loss"):
        tuned = _figure("final_tuned_accuracy", "{:.1f}", 100) if accuracy else _figure("final_tuned_loss", "{:.4g}")
        columns.append((f"fine-tuned {'%' if accuracy else 'loss'}", tuned))
    columns += [(title, _figure(name, "{:.4g}")) for name, title in TRUTH.items() if known(name)]
    columns += [
        ("ARI", _figure("final_ari")),
        ("ARI at 10", _figure("ari_at_10")),
        ("ARI ≥ 0.9 from", _figure("first_round_ari_90", "{:.1f}")),
        ("stable from", _figure("round_of_stability", "{:.1f}")),
        ("MB", _figure("megabytes", "{:.1f}", told=False)),
    ]
    if any(run.client_seconds for run in runs):
        columns.append(("client s", _figure("client_seconds", "{:.1f}", told=False)))
    if any(run.gradient_passes for run in runs):
        columns.append(("1,000 gradient passes", _figure("gradient_passes", "{:,.0f}", 1e-3, told=False)))
    return [*columns, ("seconds", _figure("seconds", "{:.1f}", told=False))]


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of them the head, as a Markdown table that also reads well in a terminal."""
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
        runs = [run for group in groups for run in group.runs]
        columns = _columns(runs)
        rows = [[cell(group) for _, cell in columns] for group in groups if group.runs]
        parts.append(markdown_table([[title for title, _ in columns], *rows]))
        parts.append(
            "Mean ± standard deviation (population) over runs that differ only in their seed; "
            "'(2 of 3)': only these have a value."
        )
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


def job_name(job: JobResult) -> str:
    """Return a job's overrides as the command line would give them."""
    return " ".join(f"{key}={value}" for key, value in job.overrides.items()) or "(no overrides)"


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
    """Write ``summary.csv``, ``summary.md`` and the curves of a sweep; return the Markdown.

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
    with naming(folder):
        _draw(folder, group_jobs(jobs)[1])
    return text
