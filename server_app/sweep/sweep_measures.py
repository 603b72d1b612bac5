"""Figures of a sweep's runs: the columns of its tables, and what is known of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from florets.reports.scores import HIGHER_IS_BETTER
from florets.reports.statistics import ARI, PERCENT, Spread
from florets.reports.summary import RunSummary
from florets.reports.tables import Cell
from florets.server_app.sweep.sweep_groups import Group, JobResult

TRUTH = {
    "final_model_error": "model error",
    "final_cluster_error": "cluster error",
    "final_cluster_loss": "cluster loss",
}
"""Columns of nearness to the truth."""

VALIDATION = "validation"
_OF_PERCENT = ("accuracy", "balanced_accuracy")


@dataclass(frozen=True)
class SweepMeasure:
    """One figure of a run.

    Attributes
    ----------
    title
        Heading of its column.
    field
        Attribute of `RunSummary`.
    form, factor
        Format of a number, and what a value is multiplied by before.
    higher
        Whether a higher value is better; None: neither is, or as with seconds it depends on the machine.
    bounds
        Range of the multiplied value, None where it has no two ends.
    says_missing
        Whether a cell says how many runs have a value, where some have none.
    always_says
        Whether it always says so.
    over_clients
        Whether it is a mean over the clients that have a model: a cell then says how many have none.
    """

    title: str
    field: str
    form: str = "{:.2f}"
    factor: float = 1.0
    higher: bool | None = None
    bounds: tuple[float, float] | None = None
    says_missing: bool = True
    always_says: bool = False
    over_clients: bool = False

    def of(self, run: RunSummary) -> float | None:
        """Return a run's value, None where it has none or one that is not finite."""
        value = getattr(run, self.field)
        return None if value is None or not math.isfinite(value) else self.factor * value

    def by_seed(self, group: Group) -> dict[int, float]:
        """Return the values that the runs of a group have, by seed."""
        return {run.seed: value for run in group.runs if (value := self.of(run)) is not None}

    def spread(self, group: Group) -> Spread:
        """Return the mean over a group's runs with its interval."""
        return Spread.of(list(self.by_seed(group).values()), self.bounds)

    def cell(self, group: Group) -> Cell:
        """Return the mean over a group's runs as a table shows it."""
        values = [self.of(run) for run in group.runs]
        text = mean_std(values, self.form, len(values) if self.says_missing else None, self.always_says)
        unplaced = [run.final_unplaced for run in group.runs]
        if self.over_clients and any(unplaced):
            text += f", {mean_std(unplaced, '{:.1f}')} clients not tested"
        return Cell(text, Spread.of([value for value in values if value is not None]).mean)


def mean_std(
    values: Sequence[float | None], form: str = "{:.2f}", of: int | None = None, always: bool = False
) -> str:
    """Return "mean ± sample std" of the values that are not None; of a single one the value, of none "-".

    Where some of ``of`` runs have no value (never recovered, say), and with ``always`` in any case, the text says how
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


def measures_of(jobs: Sequence[JobResult]) -> dict[str, SweepMeasure]:
    """Return the figures of which some run has a value, by name, in the order of a table's columns."""
    runs = [job.summary for job in jobs if job.summary is not None]

    def known(name: str) -> bool:
        return any(getattr(run, name) is not None for run in runs)

    found: dict[str, SweepMeasure] = {}
    accuracy = known("final_accuracy")
    percent = SweepMeasure("accuracy %", "final_accuracy", factor=100, higher=True, bounds=PERCENT)
    if accuracy:
        found["accuracy"] = replace(percent, over_clients=True)
    if known("final_worst_tenth"):
        found["worst_tenth"] = replace(percent, title="worst 10 % of clients", field="final_worst_tenth")
    loss = SweepMeasure("loss", "final_loss", "{:.4g}", higher=False)
    # Next to an accuracy, a loss says little: it is shown where some run has nothing else.
    if any(run.final_accuracy is None for run in runs):
        found["loss"] = replace(loss, over_clients=True)
    if known("final_validation"):
        found[VALIDATION] = _validation({job.measure for job in jobs if job.measure})
    if known("final_tuned_loss"):
        found["tuned"] = (
            replace(percent, title="fine-tuned %", field="final_tuned_accuracy", form="{:.1f}")
            if accuracy
            else replace(loss, title="fine-tuned loss", field="final_tuned_loss")
        )
    for name, title in TRUTH.items():
        if known(name):
            found[name.removeprefix("final_")] = SweepMeasure(title, name, "{:.4g}", higher=False)
    ari = SweepMeasure("ARI", "final_ari", higher=True, bounds=ARI)
    found |= {
        "ari": ari,
        "ari_at_10": replace(ari, title="ARI at 10", field="ari_at_10"),
        "rounds_to_ari_90": SweepMeasure(
            "ARI ≥ 0.9 from", "first_round_ari_90", "{:.1f}", higher=False, always_says=True
        ),
        "stable_from": SweepMeasure("stable from", "round_of_stability", "{:.1f}"),
        "megabytes": SweepMeasure("MB", "megabytes", "{:.1f}", higher=False, says_missing=False),
    }
    if any(run.client_seconds for run in runs):
        found["client_seconds"] = SweepMeasure("client s", "client_seconds", "{:.1f}", says_missing=False)
    if any(run.gradient_passes for run in runs):
        found["gradient_passes"] = SweepMeasure(
            "1,000 gradient passes", "gradient_passes", "{:,.0f}", 1e-3, higher=False, says_missing=False
        )
    return found | {"seconds": SweepMeasure("seconds", "seconds", "{:.1f}", says_missing=False)}


def main_measure(jobs: Sequence[JobResult]) -> SweepMeasure:
    """Return what runs are compared by: the accuracy where all have one, else the loss."""
    runs = [job.summary for job in jobs if job.summary is not None]
    if all(run.final_accuracy is not None for run in runs):
        return SweepMeasure("accuracy %", "final_accuracy", factor=100, higher=True, bounds=PERCENT)
    return SweepMeasure("loss", "final_loss", "{:.4g}", higher=False)


def _validation(names: set[str]) -> SweepMeasure:
    if len(names) != 1:
        return SweepMeasure(VALIDATION, "final_validation", "{:.4g}")
    (name,) = names
    higher, title = HIGHER_IS_BETTER[name], f"{VALIDATION} {name.replace('_', ' ')}"
    if name in _OF_PERCENT:
        return SweepMeasure(f"{title} %", "final_validation", factor=100, higher=higher, bounds=PERCENT)
    return SweepMeasure(title, "final_validation", "{:.4g}", higher=higher)
