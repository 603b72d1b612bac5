"""The best setting of a sweep, chosen by validation data and never by test data."""

import shlex
from dataclasses import dataclass

from florets.reports.console import counted
from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.statistics import Spread
from florets.studies.sweep.jobs import MEASURE, Jobs, group_jobs

_TESTED = {"accuracy": "final_accuracy", "loss": "final_loss", "ari": "final_ari"}
"""Columns of the test figures."""
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
        """The overrides as a shell takes them."""
        return shlex.join(f"{key}={value}" for key, value in self.overrides.items())

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


def best_of(jobs: Jobs) -> Best | None:
    """Return the setting with the best mean validation figure over its seeds; of equals the first.

    None with fewer than two settings, where the jobs have no validation data or different figures, and where no
    setting has a figure for each of its jobs: one that fails or diverges with one seed is not the best.
    """
    measures = set(jobs.runs[MEASURE].fillna(""))
    groups = group_jobs(jobs)[1]
    if len(groups) < 2 or len(measures) != 1 or not (measure := measures.pop()):
        return None
    found = [None if group.jobs.failed else _by_seed(group.jobs, "final_validation") for group in groups]
    figures = {place: spread for place, spread in enumerate(found) if spread is not None}
    if not figures:
        return None
    choose = max if HIGHER_IS_BETTER[measure] else min
    place = choose(figures, key=lambda place: figures[place].mean)
    best = groups[place].jobs
    tests = {name: spread for name, column in _TESTED.items() if (spread := _by_seed(best, column)) is not None}
    several = "seed" in best.keys and best.keys["seed"].nunique() > 1
    left_out = ("quiet", "results_dir", *(["seed"] if several else []))
    overrides = {key: value for key, value in best.given()[0].items() if value and key not in left_out}
    return Best(overrides, measure, figures[place], tests, len(groups))


def _by_seed(jobs: Jobs, field: str) -> Spread | None:
    """Return a figure over the seeds, None where a run has none; a setting may have been proposed twice."""
    values = jobs.runs.drop_duplicates("seed", keep="last")[field]
    return None if values.isna().any() else Spread.of(values.tolist())


def _value(name: str, value: float) -> str:
    if name in ("accuracy", "balanced_accuracy"):
        return f"{value:.1%}"
    return f"{value:.2f}" if name == "ari" else f"{value:.4g}"
