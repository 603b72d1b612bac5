"""Curves over the rounds of a run, and over those of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib import patheffects, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from florets.reports.console import counted
from florets.reports.look import COLOURS, GRID, INK, QUIET, STYLE
from florets.reports.picture import Picture
from florets.reports.summary import RoundLine, covers_all
from florets.strategies.base.report import FIRST_PHASE

Points = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""Rounds, and the mean and the standard deviation in each of them."""


def new_figure(width: float, height: float, rows: int = 1) -> tuple[Picture, list[Axes]]:
    """Return a figure of that size in inches, and its panels, one above the other."""
    # No pyplot: its global state is not made for the thread in which Flower runs a ServerApp.
    figure = Picture(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.11, w_pad=0.08))
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    return figure, list(axes)


def _points(lines: Sequence[RoundLine], key: str, spread: str | None = None) -> Points:
    known = [line for line in lines if line[key] is not None]
    rounds = np.array([line["round"] for line in known], dtype=np.int64)
    values = np.array([line[key] for line in known], dtype=np.float64)
    std = [0.0 if spread is None or line[spread] is None else line[spread] for line in known]
    return rounds, values, np.array(std, dtype=np.float64)


def draw_curve(
    axes: Axes, points: Points, colour: str, bounded: bool, least: NDArray[np.float64] | float = 0.0, **style: Any
) -> None:
    """Draw a mean with its spread; a `bounded` quantity (ARI, accuracy) ends at 1, another one's band at `least`."""
    rounds, mean, std = points
    # One point alone would leave a line invisible; a few points deserve their marks.
    marks: dict[str, Any] = {"marker": "o" if len(rounds) <= 30 else None, "markersize": 3.6}
    if "marker" in style and len(rounds) > 30:
        marks["markevery"] = len(rounds) // 12
    if np.any(std > 0):
        low, high = mean - std, mean + std
        if bounded:
            high = np.minimum(high, 1.0)
        else:
            # A spread larger than the mean would leave what there is, and has no lower end on a logarithmic axis.
            low = np.maximum(low, least)
        axes.fill_between(rounds, low, high, color=style.get("color", colour), alpha=0.14, linewidth=0)
    axes.plot(rounds, mean, **{"color": colour, "linewidth": 1.9, **marks, **style})


def label_rounds(axes: Axes, drawn: Iterable[Points], over: str) -> None:
    """Name the axis of the rounds and, where one of the curves has a band, what it is the spread over."""
    axes.set_xlabel(f"round (band: ± std over {over})" if any(np.any(std > 0) for _, _, std in drawn) else "round")


def _spread_labels(heights: Sequence[float], gap: float) -> list[float]:
    """Move label heights (axes fraction) apart to at least ``gap``, with as little movement as can be.

    Labels in reach of each other form a block around the mean of their heights; a block that touches the next
    one joins it (least squares under an order: pool adjacent violators).
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    blocks: list[list[float]] = []
    for rank, i in enumerate(order):
        # Less its share of the gaps, a label only has to stay in order.
        blocks.append([heights[i] - rank * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    # None rises over the top of the axes: it would push the title and the axes themselves down.
    ceiling = max(1.0, *heights) - (len(order) - 1) * gap if order else 0.0
    levels = [min(fmean(block), ceiling) for block in blocks for _ in block]
    placed = [0.0] * len(heights)
    for rank, i in enumerate(order):
        placed[i] = levels[rank] + rank * gap
    return placed


LABEL_GAP = 0.085
"""Least distance of two labels at line ends, as a fraction of the axes' height."""


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], styles: Sequence[dict[str, Any]] = ()) -> None:
    """Write (value, text, colour) to the right of the axes, at the ends of the lines.

    Where ends lie so close that labels would have to move, lines that have `styles` get a legend there instead.
    """
    # Through the axes' own transforms, which also know a logarithmic scale.
    to_axes = axes.transData + axes.transAxes.inverted()
    ends_at = [float(to_axes.transform((1, value))[1]) for value, _, _ in ends]
    ordered = sorted(ends_at)
    if styles and any(above - below < LABEL_GAP for below, above in pairwise(ordered)):
        _legend(axes, [ends[i] for i in _downwards(ends_at)], [styles[i] for i in _downwards(ends_at)])
        return
    for height, (_, text, colour) in zip(_spread_labels(ends_at, LABEL_GAP), ends, strict=True):
        axes.annotate(
            text,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontweight="bold",
            annotation_clip=False,
        )


def _downwards(heights: Sequence[float]) -> list[int]:
    return sorted(range(len(heights)), key=lambda place: -heights[place])


def _legend(axes: Axes, ends: Sequence[tuple[float, str, str]], styles: Sequence[dict[str, Any]]) -> None:
    """Draw a legend to the right of the axes, in the order of the ends from above."""
    handles = [
        Line2D([], [], **{"linewidth": 1.9, "markersize": 5, **style}, label=text)
        for (_, text, _), style in zip(ends, styles, strict=True)
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.02),
        frameon=False,
        handlelength=3.2,
        borderaxespad=0.3,
        fontsize=9.5,
        labelcolor=INK,
    )


def finish_axes(axes: Axes, key: str, values: Sequence[NDArray[np.float64]]) -> None:
    """Set grid, ticks and limits for the quantity `key`; losses that span much get a logarithmic axis."""
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    flat = np.concatenate(values)
    if key == "ari":
        axes.set_ylim(min(-0.06, float(flat.min()) - 0.06), 1.06)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    elif key == "accuracy":
        # From a tenth below the lowest value, so that 97 % and 99 % can be told apart, up to a full 100 %.
        low = max(0.0, float(flat.min()) - 0.1 * (1 - float(flat.min())))
        axes.set_ylim(low, 1 + 0.04 * (1 - low) + 1e-3)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif key == "cluster_error":
        axes.set_ylim(0, 1.1 * float(flat.max()) + 1e-3)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif flat.min() > 0 and flat.max() > 20 * flat.min():
        axes.set_yscale("log")
        # A band may reach down to 0, which would push the curves together at the top.
        axes.set_ylim(bottom=float(flat.min()) / 1.6)
    axes.set_xlim(left=0.5)


TITLES = {
    "ari": "Clusters recovered: adjusted Rand index",
    "accuracy": "Test accuracy, mean over clients",
    "loss": "Test loss, mean over clients",
    "model_error": "Distance from the true models, the largest",
    "cluster_error": "Test error of the best model for each true cluster, mean",
    "cluster_loss": "Test loss of the best model for each true cluster, mean",
}
BOUNDED = ("ari", "accuracy")
"""Quantities that end at 1."""


def panels_of(runs: Sequence[Sequence[RoundLine]]) -> list[str]:
    """Return what there is to draw: ARI where it is known, accuracy or else loss, nearness to the truth."""
    lines = [line for run in runs for line in run]
    known = [key for key in TITLES if any(line[key] is not None for line in lines)]
    # A loss says little beside the figure of the same test that people read.
    hidden = {second for first, second in (("accuracy", "loss"), ("cluster_error", "cluster_loss")) if first in known}
    return [key for key in known if key not in hidden]


def value_text(key: str, value: float) -> str:
    """Return a value of the quantity `key` as it is written beside its line."""
    texts = {"ari": f"{value:.2f}", "accuracy": f"{value:.1%}", "cluster_error": f"{value:.1%}"}
    return texts.get(key, f"{value:.3g}")


def draw_curves(lines: Sequence[RoundLine], path: Path) -> bool:
    """Draw a run's ARI and accuracy (or loss) over its rounds; return False where there is nothing to draw.

    The band is one standard deviation over clients; a vertical line marks the round from which on the
    clustering is frozen, the end of a first phase whose ARI is that of its anchors, or where clients' data change.
    """
    panels = panels_of([lines])
    if not panels:
        return False
    # A quantity that was measured once has no curve; the report gives its value.
    panels = [key for key in panels if sum(line[key] is not None for line in lines) > 1] or panels
    stable = next((line["round"] for line in lines if line["stable"]), None)
    first = sum(line["phase"] == FIRST_PHASE for line in lines)
    with rc_context(STYLE):
        figure, rows = new_figure(8.4, 0.5 + 2.5 * len(panels), len(panels))
        drawn = [_points(lines, key, f"{key}_std" if key in ("accuracy", "loss") else None) for key in panels]
        for axes, key, points in zip(rows, panels, drawn, strict=True):
            ends = [(float(points[1][-1]), value_text(key, float(points[1][-1])), COLOURS[0])]
            shown = [points[1]]
            if key == "accuracy":
                # The band of the spread is inside the picture, too.
                shown.append(np.maximum(points[1] - points[2], 0.0))
            if (beside := _beside(lines, key, points)) is not None:
                part, label, own = beside
                draw_curve(axes, part, COLOURS[1], key in BOUNDED, linewidth=1.0, alpha=0.75, zorder=1.5)
                ends = [
                    (ends[0][0], f"{own} {ends[0][1]}", COLOURS[0]),
                    (float(part[1][-1]), f"{label} {value_text(key, float(part[1][-1]))}", COLOURS[1]),
                ]
                shown.append(part[1])
            draw_curve(axes, points, COLOURS[0], key in BOUNDED)
            finish_axes(axes, key, shown)
            axes.set_title(TITLES[key])
            axes.set_xlim(0.5, max(lines[-1]["round"] + 0.25, 1.5))
            label_ends(axes, ends)
        if stable is not None:
            _mark(rows, stable, f"stable from round {stable}", lines[-1]["round"])
        if 0 < first < lines[-1]["round"]:
            _mark(rows, first + 0.5, _end_of_phase_1(lines[first - 1]), lines[-1]["round"])
        for line, before in _where_data_change(lines):
            _mark(rows, line["round"], _changed_words(line, before), lines[-1]["round"], height=0.16)
        label_rounds(rows[-1], drawn, "clients")
        figure.save(path)
    return True


def _where_data_change(lines: Sequence[RoundLine]) -> list[tuple[RoundLine, bool]]:
    """Return the lines of rounds in which clients' data begin to change, and whether they did so before."""
    # Lines of an earlier release tell nothing of it.
    changed = [line.get("data_changed", 0) > 0 for line in lines]
    starts = [number for number, now in enumerate(changed) if now and not changed[number - 1]]
    return [(lines[number], number != starts[0]) for number in starts]


def _changed_words(line: RoundLine, before: bool) -> str:
    return "again" if before else f"data of {counted(line['data_changed'], 'client')} change"


def _beside(lines: Sequence[RoundLine], key: str, points: Points) -> tuple[Points, str, str] | None:
    """Return what is drawn beside a quantity, its name and the quantity's own; None where there is nothing.

    Beside the ARI over all clients that over the participants, where it differs; beside a test result that of the
    fine-tuned copies.
    """
    if key == "ari":
        part = _points(lines, "ari_participants")
        own = "all clients" if covers_all(lines[-1]) else "clients so far"
        different = len(part[0]) > 0 and not np.array_equal(part[1], points[1])
        return (part, "participants", own) if different else None
    # Lines of an earlier release have nothing of fine-tuning.
    part = _points([line for line in lines if f"tuned_{key}" in line], f"tuned_{key}")
    return (part, "fine-tuned", "as trained") if len(part[0]) else None


def _end_of_phase_1(line: RoundLine) -> str:
    """Return the label of the end of phase 1, given its last round."""
    if line["ari"] is None or covers_all(line):
        return "end of phase 1"
    return f"end of phase 1 (ARI: {line['ari_clients']} of {line['ari_of']} clients)"


def _mark(rows: Sequence[Axes], place: float, text: str, last_round: int, height: float = 0.04) -> None:
    """Draw a vertical line through all panels, and say in the first what begins or ends there."""
    for axes in rows:
        axes.axvline(place, color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    right = place < 0.55 * last_round
    rows[0].annotate(
        text,
        (place, height),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0) if right else (-5, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        color=QUIET,
        path_effects=[patheffects.withStroke(linewidth=3, foreground="white")],
    )
