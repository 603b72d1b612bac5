"""Jobs of a sweep: their files, and their groups over seeds."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from florets.conf.saved import reading
from florets.reports.folder import write_whole
from florets.reports.summary import RunSummary
from florets.reports.tables import write_csv
from florets.strategies import TITLES

SUMMARY, JOBS = "summary.csv", "jobs.json"
STRATEGY = "strategy"

_NESTED = ("final_metrics", "final_pooled")
_FIELDS = [field.name for field in fields(RunSummary) if field.name not in _NESTED]


@dataclass(frozen=True)
class Job:
    """One job: what the command gave for it, its run's folder, and its summary or why it failed.

    `measure` names the validation figure, empty without validation data.
    """

    overrides: dict[str, str]
    folder: str = ""
    summary: RunSummary | None = None
    error: str = ""
    measure: str = ""

    @property
    def name(self) -> str:
        """The overrides as the command line gives them."""
        return " ".join(f"{key}={value}" for key, value in self.overrides.items()) or "(no overrides)"

    def to_json(self) -> str:
        """Return the job as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Job":
        """Return a job of which `to_json` wrote the values."""
        summary = values["summary"]
        return cls(**{**values, "summary": None if summary is None else RunSummary(**summary)})

    @property
    def row(self) -> dict[str, Any]:
        """The job's line of the table: its keys, its summary and the figures of each score, as ``accuracy.mean``."""
        if self.summary is None:
            return {**self.overrides, "folder": self.folder, "error": self.error}
        values = asdict(self.summary)
        values |= {name: "; ".join(values[name]) for name in ("warnings", "left_out")}
        values["validation_measure"] = self.measure or None
        for score, figures in self.summary.final_metrics.items():
            values |= {f"{score}.{name}": value for name, value in figures.items()}
        return {**self.overrides, **{name: value for name, value in values.items() if name not in _NESTED}}


def write_jobs(folder: Path, jobs: Sequence[Job]) -> None:
    """Write the jobs, in their order: as a table to read, and whole."""
    rows = [job.row for job in jobs]
    keys = [key for job in jobs for key in job.overrides if key not in _FIELDS]
    names = [name for row in rows for name in row if name != "error"]
    write_csv(folder / SUMMARY, list(dict.fromkeys([*keys, *_FIELDS, *names, "error"])), rows)
    write_whole(folder / JOBS, "[" + ",\n".join(job.to_json() for job in jobs) + "]\n")


def read_jobs(folder: Path) -> list[Job]:
    """Return the jobs of an earlier sweep."""
    with reading(folder / JOBS, "name the sweep's folder"):
        return [Job.of(values) for values in json.loads((folder / JOBS).read_text(encoding="utf-8"))]


@dataclass(frozen=True)
class Group:
    """The jobs that differ in nothing but the seed; `settings`: what varies within the sweep."""

    strategy: str
    settings: dict[str, str]
    jobs: list[Job]

    @property
    def runs(self) -> list[RunSummary]:
        """The summaries of the finished jobs."""
        return finished(self.jobs)

    @property
    def label(self) -> str:
        """The strategy, and what else varies."""
        return self._named(self.strategy)

    @property
    def title(self) -> str:
        """The label with the strategy's name as papers write it."""
        return self._named(TITLES.get(self.strategy, self.strategy))

    def _named(self, name: str) -> str:
        return " ".join([name, *(f"{key}={_short(value)}" for key, value in self.settings.items())])


def finished(jobs: Sequence[Job]) -> list[RunSummary]:
    """Return the summaries of the jobs that have one."""
    return [job.summary for job in jobs if job.summary is not None]


def group_jobs(jobs: Sequence[Job]) -> tuple[dict[str, str], list[Group]]:
    """Return the overrides that all jobs share, and the groups in the order of their first jobs."""
    keys = [key for key in dict.fromkeys(key for job in jobs for key in job.overrides) if key != "seed"]
    by_key = {key: {job.overrides.get(key, "") for job in jobs} for key in keys}
    common = {key: values.pop() for key, values in by_key.items() if len(values) == 1}
    same: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        same.setdefault(tuple(job.overrides.get(key, "") for key in keys), []).append(job)
    groups = []
    for values, some in same.items():
        given = {key: value for key, value in zip(keys, values, strict=True) if value}
        varying = {key: value for key, value in given.items() if key not in (*common, STRATEGY)}
        known = next((run.strategy for run in finished(some)), given.get(STRATEGY, "default strategy"))
        groups.append(Group(known, varying, some))
    return common, groups


def _short(value: str) -> str:
    """Return a number with at most six digits, as an optimiser draws them with all; other values as they are."""
    try:
        number = float(value)
    except ValueError:
        return value
    return value if len(value) <= 8 or not math.isfinite(number) else f"{number:.6g}"
