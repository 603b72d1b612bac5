"""Jobs of a sweep: their groups over seeds, and `summary.csv`, a row for each with its keys and figures."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from florets.conf.problems import ConfigError
from florets.reports.folder import whole_file
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.summary import RunSummary
from florets.strategies import TITLES

SUMMARY = "summary.csv"
MEASURE = "validation_measure"
"""Column that names the validation figure."""

_FIRST = "rounds"
"""The first figure: columns before it are keys."""
_FIELDS = {field.name: field for field in fields(RunSummary)}
_TEXTS = ("experiment", "strategy", "folder", "discovery")
_LISTS = ("warnings", "left_out")
_FIELDS_WITHOUT_DEFAULT = [name for name, field in _FIELDS.items() if field.default is MISSING]
PARTICIPATION = "participation"
"""Column of a stored sweep, which has no folders to take it from."""


_SAMPLES = "strategy.fraction_train"


@dataclass(frozen=True)
class JobResult:
    """One job of a sweep: what the command gave for it, the run's folder, and its summary or why it failed.

    `participation` is the fraction of the clients that a round samples, None where the job came to no configuration;
    `measure` names the validation figure, empty without validation data.
    """

    overrides: dict[str, str]
    folder: Path | None
    summary: RunSummary | None
    error: str | None
    participation: float | None = None
    measure: str = ""


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
        return self.named(self.name)

    @property
    def title(self) -> str:
        """The label with the strategy's name as papers write it."""
        return self.named(self.strategy_title)

    @property
    def strategy_title(self) -> str:
        """The name with the strategy as papers write it."""
        title = TITLES.get(self.strategy, self.strategy)
        return f"{title} ({self.sampled})" if self.sampled else title

    def named(self, name: str) -> str:
        """Return the label with another name of the strategy."""
        return " ".join([name, *(f"{key}={short(value)}" for key, value in self.settings.items())])

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
        told = mixed and share < 1.0 and _SAMPLES not in first
        sampled = f"{100 * share:.3g} % of the clients a round" if told else ""
        groups.append(Group(strategy, {key: first[key] for key in varying}, same, sampled))
    return common, groups


def short(value: str) -> str:
    """Return a number with at most six digits, as an optimiser draws them with all; other values as they are."""
    try:
        number = float(value)
    except ValueError:
        return value
    return value if len(value) <= 8 or not math.isfinite(number) else f"{number:.6g}"


def job_name(job: JobResult) -> str:
    """Return a job's overrides as the command line would give them."""
    return " ".join(f"{key}={value}" for key, value in job.overrides.items()) or "(no overrides)"


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
    """Return the rows of a sweep's table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or error) from error


def _unreadable(path: Path, reason: object) -> ConfigError:
    return ConfigError([f"{path}: cannot be read as a sweep's table ({reason}); name the sweep's folder."])


def keys_of(row: Mapping[str, str]) -> list[str]:
    """Return the columns of a row that hold keys: all before the first figure."""
    names = list(row)
    return names[: next(place for place, name in enumerate(names) if name in (_FIRST, PARTICIPATION, "error"))]


def read_jobs(path: Path) -> list[JobResult]:
    """Return the jobs of an earlier sweep, from its table or from what `report.store_sweeps` kept of it."""
    rows = read_rows(path)
    # Keys given by hand are in every row; those that only a summary adds are missing for failed jobs.
    left_out = {name for name in ("experiment", "strategy", "seed") for row in rows if not row.get(name)}
    try:
        return [_job(row, left_out) for row in rows]
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise _unreadable(path, error) from error


def _job(row: Mapping[str, str], left_out: Collection[str]) -> JobResult:
    overrides = {name: row[name] for name in keys_of(row) if row[name] and name not in left_out}
    folder = Path(row["folder"]) if row.get("folder") else None
    share = float(row[PARTICIPATION]) if row.get(PARTICIPATION) else participation_of(folder)
    if row.get("error"):
        return JobResult(overrides, folder, None, row["error"], share)
    metrics: dict[str, dict[str, Any]] = {}
    for name, text in row.items():
        score, dot, figure = name.partition(".")
        if dot and score in HIGHER_IS_BETTER and name not in overrides:
            metrics.setdefault(score, {})[figure] = _number(text)
    values: dict[str, Any] = dict.fromkeys(_TEXTS, "") | dict.fromkeys(_FIELDS_WITHOUT_DEFAULT)
    for name, field in _FIELDS.items():
        if name in _TEXTS:
            values[name] = row.get(name, "")
        elif name in _LISTS:
            values[name] = row[name].split("; ") if row.get(name) else []
        elif name in row:
            value = _number(row[name])
            # An empty cell of what has a value in every run is its default.
            values[name] = field.default if value is None and field.default is not MISSING else value
    summary = RunSummary(**values | {"final_metrics": metrics})
    return JobResult(overrides, folder, summary, None, share, row.get(MEASURE, ""))


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
