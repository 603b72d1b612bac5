"""The jobs of a sweep as its `summary.csv`: one row a job, its keys, its figures and why it failed."""

import csv
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import yaml

from florets.conf.problems import ConfigError
from florets.reports.folder import whole_file
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.summary import RunSummary
from florets.server_app.sweep.sweep_groups import JobResult

SUMMARY = "summary.csv"
MEASURE = "validation_measure"
"""Column that names the validation figure."""

_FIRST = "rounds"
"""The first figure: columns before it are keys."""
_FIELDS = {field.name: field for field in fields(RunSummary)}
_TEXTS = ("experiment", "strategy", "folder", "discovery")
_LISTS = ("warnings", "left_out")


def write_jobs(path: Path, jobs: Sequence[JobResult]) -> None:
    """Write jobs, in their order."""
    runs = [job.summary for job in jobs if job.summary is not None]
    scores = {f"{name}.{figure}": None for run in runs for name, of in run.final_metrics.items() for figure in of}
    measure = [MEASURE] if any(run.final_validation is not None for run in runs) else []
    names = [*(name for name in _FIELDS if name != "final_metrics"), *measure, *scores]
    keys = [key for key in dict.fromkeys(k for job in jobs for k in job.overrides) if key not in names]
    with whole_file(path) as file:
        writer = csv.DictWriter(file, [*keys, *names, "error"], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for job in jobs:
            # A failed job has no summary: its overrides fill the columns of the same name (strategy, seed).
            row: dict[str, object] = dict(job.overrides)
            row["folder"] = "" if job.folder is None else str(job.folder)
            if job.summary is not None:
                lists = {name: "; ".join(getattr(job.summary, name)) for name in _LISTS}
                row.update({**asdict(job.summary), **lists, MEASURE: job.measure})
                # A column for each figure of each score.
                metrics: dict[str, dict[str, object]] = row.pop("final_metrics")  # type: ignore[assignment]
                row.update({f"{name}.{figure}": v for name, of in metrics.items() for figure, v in of.items()})
            writer.writerow({**row, "error": job.error or ""})


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a sweep's table.

    Raises
    ------
    ConfigError
        If it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            [f"{path}: cannot be read as a sweep's table ({reason}); name the sweep's folder."]
        ) from error


def keys_of(row: Mapping[str, str]) -> list[str]:
    """Return the columns of a row that hold keys: all before the first figure."""
    return list(row)[: list(row).index(_FIRST)]


def read_jobs(folder: Path) -> list[JobResult]:
    """Return the jobs of an earlier sweep.

    Parameters
    ----------
    folder
        The sweep's own.

    Raises
    ------
    ConfigError
        If it holds no sweep's table.
    """
    rows = read_rows(folder / SUMMARY)
    # Keys given by hand are in every row; those that only a summary adds are missing for failed jobs.
    left_out = {name for name in ("experiment", "strategy", "seed") for row in rows if not row.get(name)}
    try:
        return [_job(row, left_out) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            [f"{folder / SUMMARY}: is not a sweep's table ({error}); name the folder of a sweep."]
        ) from error


def _job(row: Mapping[str, str], left_out: Collection[str]) -> JobResult:
    overrides = {name: row[name] for name in keys_of(row) if row[name] and name not in left_out}
    folder = Path(row["folder"]) if row["folder"] else None
    if row["error"]:
        return JobResult(overrides, folder, None, row["error"])
    metrics: dict[str, dict[str, Any]] = {}
    for name, text in row.items():
        score, dot, figure = name.partition(".")
        if dot and score in HIGHER_IS_BETTER and name not in overrides:
            metrics.setdefault(score, {})[figure] = _number(text)
    values: dict[str, Any] = {
        name: row[name] if name in _TEXTS else row[name].split("; ") if row[name] else []
        for name in (*_TEXTS, *_LISTS)
        if name in row
    }
    for name, field in _FIELDS.items():
        if name not in values and name in row:
            value = _number(row[name])
            # An empty cell of what has a value in every run is its default.
            values[name] = field.default if value is None and field.default is not MISSING else value
    summary = RunSummary(**values, final_metrics=metrics)
    return JobResult(overrides, folder, summary, None, participation_of(folder), row.get(MEASURE, ""))


def _number(text: str) -> Any:
    return json.loads(text) if text else None


def participation_of(run: Path | None) -> float | None:
    """Return the fraction of the clients that a round of a run samples, None where its folder is gone."""
    if run is None:
        return None
    try:
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except OSError:
        return None
    return float(config.get("strategy", {}).get("fraction_train", 1.0))
