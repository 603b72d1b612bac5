"""The figure of a sweep: mean curves over the runs that differ only in their seed, with their spread."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from numpy.typing import NDArray

from florets.reports.look import COLOURS, QUIET, STYLE
from florets.server_app.results.plots import (
    BOUNDED,
    TITLES,
    Points,
    draw_curve,
    finish_axes,
    label_ends,
    label_rounds,
    new_figure,
    panels_of,
    save,
    value_text,
)
from florets.server_app.results.summary import RoundLine


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
    """Draw, for each name, the mean over its runs with a band of one standard deviation.

    A run that ended early counts in its own rounds only: nothing is made up for those that it did not have.
    Returns False where there is nothing to draw.
    """
    runs_of_all = [run for runs in curves.values() for run in runs]
    panels = panels_of(runs_of_all)
    if not panels:
        return False
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
                draw_curve(axes, points, COLOURS[i % len(COLOURS)], key in BOUNDED, drawn[i][2])
                shown.append(points)
            finish_axes(axes, key, [points[1] for _, _, points in known])
            axes.set_xlim(0.5, max(1.5, *(float(points[0][-1]) + 0.25 for _, _, points in known)))
            axes.set_title(TITLES[key])
            label_ends(
                axes,
                [
                    (float(p[1][-1]), f"{name}: {value_text(key, float(p[1][-1]))}", COLOURS[i % len(COLOURS)])
                    for i, name, p in known
                ],
            )
        label_rounds(rows[-1], shown, "seeds")
        if title:
            figure.suptitle(title, x=0.01, ha="left", color=QUIET)
        save(figure, path)
    return True
