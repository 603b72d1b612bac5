"""The figure of a sweep: mean curves over the runs that differ only in their seed, with their spread."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from numpy.typing import NDArray

from florets.reports.look import GRID, QUIET, STYLE, line_style
from florets.reports.picture import Picture
from florets.reports.plots import (
    BOUNDED,
    TITLES,
    Points,
    draw_curve,
    finish_axes,
    label_ends,
    label_rounds,
    new_figure,
    panels_of,
    value_text,
)
from florets.reports.statistics import Spread
from florets.reports.summary import RoundLine


def _over_runs(runs: Sequence[Sequence[RoundLine]], key: str) -> tuple[Points, NDArray[np.float64]]:
    """Return mean, sample std and least value over runs, in each round that some run has a value in."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for line in run:
            if line[key] is not None:
                values.setdefault(line["round"], []).append(line[key])
    rounds = sorted(values)
    # Of one run alone there is no spread.
    spread = [np.std(values[r], ddof=1) if len(values[r]) > 1 else 0.0 for r in rounds]
    points = (
        np.array(rounds, dtype=np.int64),
        np.array([np.mean(values[r]) for r in rounds], dtype=np.float64),
        np.array(spread, dtype=np.float64),
    )
    return points, np.array([np.min(values[r]) for r in rounds], dtype=np.float64)


def draw_sweep(curves: Mapping[str, Sequence[Sequence[RoundLine]]], path: Path, title: str = "") -> bool:
    """Draw `sweep_figure` into a file; return False where there is nothing to draw."""
    figure = sweep_figure(curves, title)
    if figure is not None:
        figure.save(path)
    return figure is not None


def sweep_figure(
    curves: Mapping[str, Sequence[Sequence[RoundLine]]], title: str = "", quantities: Sequence[str] = ()
) -> Picture | None:
    """Return a figure of, for each name, the mean over its runs with a band of one standard deviation.

    A run that ended early counts in its own rounds only: nothing is made up for those that it did not have.
    None where there is nothing to draw.

    Parameters
    ----------
    quantities
        Keys of the rounds' lines, a panel for each; none: those that say most.
    """
    runs_of_all = [run for runs in curves.values() for run in runs]
    panels = [key for key in quantities if any(line.get(key) is not None for run in runs_of_all for line in run)]
    panels = panels if quantities else panels_of(runs_of_all)
    if not panels:
        return None
    # A quantity that was measured at the end alone has no curve; tables give its value.
    panels = [
        key for key in panels if any(sum(line[key] is not None for line in run) > 1 for run in runs_of_all)
    ] or panels
    with rc_context(STYLE):
        figure, rows = new_figure(8.4, 0.7 + 2.8 * len(panels), len(panels))
        shown: list[Points] = []
        for axes, key in zip(rows, panels, strict=True):
            drawn = [(name, *_over_runs(runs, key)) for name, runs in curves.items()]
            known = [(i, name, points) for i, (name, points, _) in enumerate(drawn) if len(points[0])]
            for i, _, points in known:
                draw_curve(axes, points, "", key in BOUNDED, drawn[i][2], **line_style(i))
                shown.append(points)
            finish_axes(axes, key, [points[1] for _, _, points in known])
            axes.set_xlim(0.5, max(1.5, *(float(points[0][-1]) + 0.25 for _, _, points in known)))
            axes.set_title(TITLES.get(key, key))
            styles = [line_style(i) for i, _, _ in known]
            ends = [
                (float(points[1][-1]), f"{name}: {value_text(key, float(points[1][-1]))}", str(style["color"]))
                for (_, name, points), style in zip(known, styles, strict=True)
            ]
            label_ends(axes, ends, styles)
        label_rounds(rows[-1], shown, "seeds")
        if title:
            figure.suptitle(title, x=0.01, ha="left", color=QUIET)
    return figure


def settings_figure(
    lines: Mapping[str, Sequence[tuple[str, Spread]]],
    title: str,
    over: str,
    bounds: tuple[float, float] | None,
    joined: bool = True,
) -> Picture:
    """Return a figure of means ± one standard deviation over the values of a key, a line for each name.

    Parameters
    ----------
    lines
        By name the values of the key with what they gave; a single line needs no name. Values that are all numbers
        have their places on an axis of numbers, one of powers where they span a factor of more than 20. Others stand
        side by side, and are not joined.
    over
        The key.
    bounds
        Range of the quantity, None where it has no two ends.
    joined
        Whether points of one name are joined by a line.
    """
    values = list(dict.fromkeys(value for line in lines.values() for value, _ in line))
    known = [number for value in values if (number := _number(value)) is not None]
    is_number = len(known) == len(values)
    at = dict(zip(values, known if is_number else map(float, range(len(values))), strict=True))
    with rc_context(STYLE):
        figure, (axes,) = new_figure(8.4, 3.9)
        ends, styles, bars = [], [], False
        for number, (name, line) in enumerate(lines.items()):
            places = sorted(((at[value], spread) for value, spread in line if spread.number), key=lambda one: one[0])
            if not places:
                continue
            style = line_style(number)
            x, mean = [place for place, _ in places], np.array([spread.mean for _, spread in places])
            std = np.nan_to_num([spread.deviation for _, spread in places])
            bars = bars or bool(std.any())
            drawn = style if is_number and joined else {**style, "linestyle": "none"}
            axes.errorbar(x, mean, yerr=std if std.any() else None, capsize=3, elinewidth=1, markersize=5.5, **drawn)
            if name:
                ends.append((float(mean[-1]), name, str(style["color"])))
                styles.append(drawn)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, which="both")
        axes.set_xlabel(f"{over} (bars: ± std over seeds)" if bars else over)
        if is_number and min(known) > 0 and max(known) > 20 * min(known):
            axes.set_xscale("log")
        elif is_number and len(values) <= 12:
            axes.set_xticks(known, values)
        elif not is_number:
            axes.set_xticks(range(len(values)), values)
            axes.set_xlim(-0.4, len(values) - 0.6)
        # Asked for, the limits are those of what was drawn, which the labels need.
        low, high = axes.get_ylim()
        if bounds is not None:
            axes.set_ylim(max(low, bounds[0]), min(high, bounds[1] + 0.02 * (bounds[1] - bounds[0])))
        axes.set_title(title)
        label_ends(axes, ends, styles)
    return figure


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
