"""A sweep in one small file: its table is made of it where the folders of its jobs are not."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.reports.console import counted
from florets.reports.folder import whole_file
from florets.reports.scores import WORST
from florets.reports.summary import RunSummary
from florets.reports.tables import markdown_table
from florets.server_app.resume import CHANGEABLE
from florets.server_app.sweep.sweep_csv import SUMMARY, keys_of, participation_of, read_rows
from florets.server_app.sweep.sweep_groups import JobResult, group_jobs
from florets.server_app.sweep.sweep_measures import TRUTH
from florets.server_app.sweep.sweep_report import means

_FIGURES = (
    *("rounds", "final_accuracy", "final_loss", *TRUTH, "final_ari", "ari_at_10", "first_round_ari_90"),
    *("round_of_stability", "bytes_down", "bytes_up", "seconds", "final_unplaced", "final_tuned_accuracy"),
    *("final_tuned_loss", "client_seconds", "gradient_passes", "loss_passes"),
)
"""Figures of a run's summary that are stored."""
_COUNTS = (
    *("rounds", "first_round_ari_90", "round_of_stability", "bytes_down", "bytes_up", "final_unplaced"),
    *("gradient_passes", "loss_passes"),
)
_NEEDED = ("rounds", "bytes_down", "bytes_up", "seconds")
_WORST, _SHARE = f"accuracy.{WORST}", "participation"
_OWN = (*_FIGURES, _WORST, _SHARE, "error")
_UNSAID = set(CHANGEABLE) - {"num_rounds"}
"""Keys that say where and how a job was run, and not what it computed."""


def store_sweeps(folders: Sequence[Path], path: Path) -> int:
    """Write the jobs of some sweeps, as their ``summary.csv`` has them, to one file; return how many there are.

    Parameters
    ----------
    folders : sequence of Path
        Folders of sweeps; a job that several have is taken from the last one in which it did not fail.
    path : Path
        The file.

    Raises
    ------
    ConfigError
        If a folder holds no sweep's summary, or a job was run on two folders of data.
    """
    jobs: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    data: dict[tuple[tuple[str, str], ...], str] = {}
    for folder in folders:
        for line in read_rows(folder / SUMMARY):
            # Everything before the first figure is what the command gave; a summary adds these three.
            given = [name for name in keys_of(line) if name not in _UNSAID]
            keys = {name: line[name] for name in given if line[name]}
            known = {name: _short(line.get(name, "")) for name in (*_FIGURES, _WORST)}
            known |= {_SHARE: _share(line["folder"]), "error": line["error"]}
            job = tuple(sorted(keys.items()))
            here = line.get("data_dir", "")
            # Where it is not named nothing is known of it.
            if here and (before := data.setdefault(job, here)) != here:
                told = " ".join(f"{key}={value}" for key, value in keys.items())
                raise ConfigError(
                    [f"{folder}: {told}: was run on data_dir={here}, before on {before}; store these sweeps apart."]
                )
            if not (known["error"] and job in jobs and not jobs[job]["error"]):
                jobs[job] = keys | known
    names = list(dict.fromkeys(name for job in jobs.values() for name in job if name not in _OWN))
    used = [name for name in _OWN if any(job[name] for job in jobs.values())]
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        writer = csv.DictWriter(file, [*names, *used], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(jobs.values())
    return len(jobs)


def stored_jobs(path: Path) -> list[JobResult]:
    """Return the jobs of a file that `store_sweeps` wrote.

    Raises
    ------
    ConfigError
        If the file cannot be read.
    """
    lines = read_rows(path)
    try:
        return [_job(line) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError([f"{path}: cannot be read as a stored sweep ({error}); store the sweep again."]) from error


def sweep_text(jobs: Sequence[JobResult], names: Sequence[str], where: Mapping[str, str]) -> str:
    """Return what a sweep's jobs have in common and their means, as Markdown.

    Parameters
    ----------
    names : sequence of str
        Columns, see `sweep_report.means`.
    where : mapping of str to str
        Keys and values of the jobs that are shown; all by default.

    Raises
    ------
    ValueError
        If no job has those values, or there is no such column.
    """
    shown = [job for job in jobs if all(job.overrides.get(key) == value for key, value in where.items())]
    if not shown:
        raise ValueError(f"where={','.join(f'{key}:{value}' for key, value in where.items())}: no job has these.")
    common, groups = group_jobs(shown)
    keys = [f"`{key}={value}`" for key, value in common.items()]
    seeds = sorted({int(job.overrides["seed"]) for job in shown if "seed" in job.overrides})
    failed = sum(job.summary is None for job in shown)
    told = f"{counted(len(shown), 'run')}" + (f", {failed} failed" if failed else "")
    parts = [f"{told}: {', '.join(keys)}, seeds {', '.join(map(str, seeds))}. Mean ± sample standard deviation."]
    return "\n\n".join([*parts, markdown_table(means(groups, names).texts)])


def _job(line: Mapping[str, str]) -> JobResult:
    overrides = {name: text for name, text in line.items() if name not in _OWN and text}
    share = float(line[_SHARE]) if line.get(_SHARE) else None
    if line.get("error"):
        return JobResult(overrides, None, None, line["error"], share)
    figures: dict[str, Any] = {
        name: (int if name in _COUNTS else float)(line[name]) if line.get(name) else None for name in _FIGURES
    }
    # Those that are no fields without a value.
    for name in (*_NEEDED, "final_unplaced", "client_seconds", "gradient_passes", "loss_passes"):
        figures[name] = figures[name] or 0
    worst: dict[str, dict[str, float | None]] = {"accuracy": {WORST: float(line[_WORST])}} if line.get(_WORST) else {}
    summary = RunSummary(
        experiment=line.get("experiment", ""),
        strategy=line["strategy"],
        seed=int(line["seed"]),
        folder="",
        final_metrics=worst,
        **figures,
    )
    return JobResult(overrides, None, summary, None, share)


def _short(text: str) -> str:
    """Return a figure with six digits, which are more than any table shows; an integer as it is."""
    return text if not text or text.lstrip("-").isdecimal() else json.dumps(float(f"{float(text):.6g}"))


def _share(folder: str) -> str:
    """Return the fraction of the clients that a round of a run samples; empty where its folder is gone."""
    share = participation_of(Path(folder) if folder else None)
    return "" if share is None else str(share)
