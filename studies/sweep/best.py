"""The best setting of a sweep, chosen by validation data and never by test data."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from florets.reports.console import counted
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.statistics import Spread
from florets.reports.summary import RunSummary
from florets.studies.sweep.jobs import Group, Job, finished, group_jobs

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
