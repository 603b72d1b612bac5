"""The best setting of a sweep, chosen by validation data and never by test data: `best.yaml` and the last line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from florets.reports.console import counted
from florets.reports.folder import write_whole
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.statistics import Spread
from florets.studies.sweep.jobs import Group, JobResult, group_jobs

BEST = "best.yaml"

_NOT_A_SETTING = ("quiet", "results_dir")
_TESTED = ("accuracy", "loss", "ari")
_TITLES = {"ari": "ARI"}


@dataclass(frozen=True)
class Best:
    """A setting that was chosen.

    Attributes
    ----------
    overrides
        The keys of its jobs as the command line gives them; with the seed only where it was run with one.
    validation
        That figure over the runs of the setting.
    test
        Its figures on test data, by name (`accuracy` from 0 to 1, `loss`, `ari`), which played no part in the choice.
    settings
        Number of settings that it was chosen from.
    """

    overrides: dict[str, str]
    measure: str
    validation: Spread
    test: dict[str, Spread]
    settings: int

    @property
    def command(self) -> str:
        """The overrides as one text."""
        return " ".join(f"{key}={value}" for key, value in self.overrides.items())

    @property
    def words(self) -> str:
        """The choice in one line."""
        # Next to an accuracy, a loss says little.
        names = [name for name in self.test if name != "loss" or "accuracy" not in self.test]
        shown = [f"test {_TITLES.get(name, name)} {_value(name, self.test[name].mean)}" for name in names]
        figures = ", ".join([f"validation {_value(self.measure, self.validation.mean)}", *shown])
        runs = "" if self.validation.number == 1 else f", means of {self.validation.number} seeds"
        by = f"validation {self.measure.replace('_', ' ')}"
        return f"Best of {counted(self.settings, 'setting')} by {by}: {self.command} ({figures}{runs})"

    def to_yaml(self) -> str:
        """Return the text of `best.yaml`."""
        content: dict[str, Any] = {
            "overrides": self.command,
            "validation": {"measure": self.measure, **_figures(self.validation)},
            "test": {name: _figures(spread) for name, spread in self.test.items()},
            "settings": self.settings,
        }
        head = "# Chosen by validation data; the test figures played no part in the choice.\n"
        return head + yaml.safe_dump(content, sort_keys=False, width=10_000, allow_unicode=True)


def best_of(jobs: Sequence[JobResult]) -> Best | None:
    """Return the setting with the best mean validation figure over its seeds; of equals the first.

    None with fewer than two settings, where the jobs have no validation data or different figures, and where no
    setting has a figure for each of its jobs: one that fails or diverges with one seed is not the best.
    """
    measures = {job.measure for job in jobs if job.summary is not None}
    groups = group_jobs(jobs)[1]
    if len(groups) < 2 or len(measures) != 1 or not (measure := measures.pop()):
        return None
    figures = {}
    for place, group in enumerate(groups):
        if len(group.runs) == len(group.jobs) and (found := _by_seed(group, "final_validation")) is not None:
            figures[place] = found
    if not figures:
        return None
    choose = max if HIGHER_IS_BETTER[measure] else min
    place = choose(figures, key=lambda place: figures[place].mean)
    return Best(_overrides(groups[place]), measure, figures[place], _tests(groups[place]), len(groups))


def write_best(folder: Path, jobs: Sequence[JobResult]) -> str:
    """Write `best.yaml` into a sweep's folder and return the choice in words; without a choice return ""."""
    best = best_of(jobs)
    if best is None:
        return ""
    write_whole(folder / BEST, best.to_yaml())
    return best.words


def _overrides(group: Group) -> dict[str, str]:
    one_seed = len({job.overrides.get("seed") for job in group.jobs}) == 1
    given = group.jobs[0].overrides
    left_out = _NOT_A_SETTING if one_seed else (*_NOT_A_SETTING, "seed")
    return {key: value for key, value in given.items() if key not in left_out}


def _tests(group: Group) -> dict[str, Spread]:
    found = {name: _by_seed(group, f"final_{name}") for name in _TESTED}
    return {name: spread for name, spread in found.items() if spread is not None}


def _by_seed(group: Group, field: str) -> Spread | None:
    """Return a figure over a group's seeds, None where a run has none; a setting may have been proposed twice."""
    values = {run.seed: getattr(run, field) for run in group.runs}
    return None if None in values.values() else Spread.of(list(values.values()))


def _figures(spread: Spread) -> dict[str, float | int]:
    deviation = {} if spread.number < 2 else {"std": spread.deviation}
    return {"mean": spread.mean, **deviation, "runs": spread.number}


def _value(name: str, value: float) -> str:
    if name in ("accuracy", "balanced_accuracy"):
        return f"{value:.1%}"
    return f"{value:.2f}" if name == "ari" else f"{value:.4g}"
