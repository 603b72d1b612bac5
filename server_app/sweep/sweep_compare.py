"""Groups of a sweep compared: intervals of their means, and differences on equal seeds."""

from collections.abc import Sequence

from florets.reports.statistics import Compared, Spread, compare, p_text
from florets.server_app.sweep.sweep_groups import Group
from florets.server_app.sweep.sweep_measures import SweepMeasure, main_measure


def compared(groups: Sequence[Group], measure: SweepMeasure) -> Sequence[Compared]:
    """Return the groups that have runs, each compared with the first of equal settings.

    With a single strategy, all are compared with the first group.
    """
    shown = [group for group in groups if group.runs]
    by_settings = len({group.strategy for group in shown}) > 1
    against = {}
    for group in shown:
        first = next(other for other in shown if not by_settings or other.settings == group.settings)
        if first is not group:
            against[group.label] = first.label
    return compare({group.label: measure.by_seed(group) for group in shown}, against, measure.bounds)


def comparison(groups: Sequence[Group], titles: bool = False) -> list[list[str]]:
    """Return the groups' means with intervals and their differences from the first, the first row its head.

    By accuracy, where all runs have one, else by the loss. Empty where no group has two runs.

    Parameters
    ----------
    titles
        Whether strategies have the names that papers give them.
    """
    if not any(len(group.runs) > 1 for group in groups):
        return []
    measure = main_measure([job for group in groups for job in group.jobs])

    def form(value: float, sign: str = "-") -> str:
        return f"{value:{sign}.2f}" if measure.bounds else f"{value:{sign}.4g}"

    def interval(spread: Spread, sign: str = "-") -> str:
        return "" if spread.number < 2 else f"[{form(spread.low, sign)}, {form(spread.high, sign)}]"

    rows = [["strategy", measure.title, "interval", "less", "difference", "interval", "test"]]
    names = {"": ""} | {group.label: group.title if titles else group.label for group in groups}
    for one in compared(groups, measure):
        row = [names[one.name], form(one.spread.mean) if one.spread.number else "-", interval(one.spread)]
        if not one.against:
            rows.append([*row, "", "", "", ""])
        elif not one.difference.number:
            rows.append([*row, names[one.against], "no equal seeds", "", ""])
        else:
            between = one.difference
            rows.append(
                [*row, names[one.against], form(between.mean, "+"), interval(between, "+"), p_text(one.p_holm)]
            )
    return rows
