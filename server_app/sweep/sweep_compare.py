"""Groups of a sweep compared: intervals of their means, and differences on equal seeds."""

import math
from collections.abc import Callable, Sequence

from florets.server_app.results.statistics import Spread, evidence, paired
from florets.server_app.sweep.sweep_groups import Group

LEGEND = (
    "Intervals are 95 %, by Student's t; differences are paired by the seed. Of 6 pairs and more p is that of "
    "Wilcoxon's signed-rank test, of fewer the bootstrap's interval stands in its place."
)


def comparison(groups: Sequence[Group]) -> list[list[str]]:
    """Return the groups' means with intervals and their differences from the first, the first row its head.

    Groups of equal settings are compared with the first strategy among them; where there is one strategy alone, with
    the first group. By accuracy, where all runs have one, else by the loss. Empty where no group has two runs.
    """
    shown = [group for group in groups if group.runs]
    if not any(len(group.runs) > 1 for group in shown):
        return []
    accuracy = all(run.final_accuracy is not None for group in shown for run in group.runs)
    by_settings = len({group.strategy for group in shown}) > 1

    def values(group: Group) -> dict[int, float]:
        found = {run.seed: run.final_accuracy if accuracy else run.final_loss for run in group.runs}
        # A run that diverged has no loss that could be averaged: the row's number of runs tells.
        known = {seed: value for seed, value in found.items() if value is not None and math.isfinite(value)}
        return {seed: 100 * value if accuracy else value for seed, value in known.items()}

    def form(value: float, sign: str = "+") -> str:
        return f"{value:{sign}.2f}" if accuracy else f"{value:{sign}.4g}"

    rows = [["strategy", "accuracy %" if accuracy else "loss", "interval", "less", "difference", "interval", "test"]]
    for group in shown:
        first = next(other for other in shown if not by_settings or other.settings == group.settings)
        spread = Spread.of(list(values(group).values()))
        row = [group.label, "-" if not spread.number else form(spread.mean, "-"), _interval(spread, form, "-")]
        if group is first:
            rows.append([*row, "", "", "", ""])
            continue
        differences = paired(values(group), values(first))
        between = Spread.of(differences)
        told = [form(between.mean), _interval(between, form, "+"), evidence(differences, form)]
        rows.append([*row, first.label, *(told if differences else ["no equal seeds", "", ""])])
    return rows


def _interval(spread: Spread, form: Callable[[float, str], str], sign: str) -> str:
    return "" if spread.number < 2 else f"[{form(spread.low, sign)}, {form(spread.high, sign)}]"
