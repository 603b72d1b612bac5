"""Jobs of a sweep, and the groups of those that differ in their seed alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from florets.reports.summary import RunSummary
from florets.strategies import TITLES

_PARTICIPATION = "strategy.fraction_train"


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
    measure : str
        Name of the validation figure; empty where the job has no validation data.
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
        told = mixed and share < 1.0 and _PARTICIPATION not in first
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
