"""The client x model losses as a heatmap: what a clustering by losses sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from florets.reports.look import COLOURS, INK, QUIET, STYLE
from florets.reports.plots import new_figure

MOST_NAMES = 60
"""With more clients than this their names would be too small to read; the clusters' names stay."""
LONGEST_NAME = 16
_TALLEST, _LONGEST_BAR = 7.5, 3.4
"""Inches of the picture's rows without names, and of its colour bar."""
_TICKS_PER_INCH = 5


def _order(keys: Sequence[str], truth: Mapping[str, int], assignment: Mapping[str, int]) -> list[int]:
    """Return the rows sorted by true cluster, then by model, then by key; what is not known comes last."""
    last = len(keys) + max([0, *truth.values(), *assignment.values()])
    return sorted(
        range(len(keys)),
        key=lambda row: (truth.get(keys[row], last), assignment.get(keys[row], last), keys[row]),
    )


def _colour_scale(losses: NDArray[np.float64]) -> Normalize:
    """Return a logarithmic scale where losses differ much and are positive, else a linear one."""
    known = losses[np.isfinite(losses)]
    if not len(known):
        return Normalize(0, 1)
    low, high = float(known.min()), float(known.max())
    if high <= low:
        return Normalize(low - 0.5, high + 0.5)
    return LogNorm(low, high) if low > 0 and high > 5 * low else Normalize(low, high)


def _ticks(losses: NDArray[np.float64], length: float) -> tuple[int, ...]:
    """Return the ticks of each decade for a logarithmic bar of `length` inches; more would run into each other."""
    known = losses[np.isfinite(losses)]
    return (1, 2, 5) if 3 * np.log10(known.max() / known.min()) < _TICKS_PER_INCH * length else (1,)


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a client's name for a picture: cut where it is too long, and its dollars no formula to matplotlib."""
    cut = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return cut.replace("$", r"\$")


def name_groups(axes: Axes, names: Sequence[str | None], room: float) -> None:
    """Set the groups of rows apart by white lines, and name each of them on the left, past `room` points."""
    start = 0
    for name, rows in groupby(names):
        size = len(list(rows))
        if start:
            axes.axhline(start - 0.5, color="white", linewidth=2.5)
        if name is not None:
            axes.annotate(
                f"{name}\n{size} clients" if size > 2 else name,
                (0, start + (size - 1) / 2),
                xycoords=("axes fraction", "data"),
                xytext=(-room - 10, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=9.5 if size > 2 else 8,
                linespacing=1.35,
            )
        start += size


def draw_loss_matrix(
    keys: Sequence[str],
    losses: NDArray[np.float64],
    truth: Mapping[str, int],
    assignment: Mapping[str, int],
    path: Path,
) -> bool:
    """Draw the losses of all models on all clients; return False where there is nothing to draw.

    Parameters
    ----------
    keys : sequence of str, length M
        Client of each row.
    losses : float64 array (M, K)
        Mean loss on the client's training data. What is not finite stays blank.
    truth, assignment : mapping of str to int
        True cluster (empty where not known) and model of each client. Rows are sorted by true cluster; a dot
        marks the client's model.
    """
    if not losses.size:
        return False
    order = _order(keys, truth, assignment)
    num_clients, num_models = losses.shape
    named = num_clients <= MOST_NAMES
    row_height = min(0.24, 9.0 / num_clients) if named else _TALLEST / num_clients
    cell_width = min(0.95, max(0.3, 6.0 / num_models))
    with rc_context(STYLE):
        height = max(2.4, 1.3 + row_height * num_clients)
        figure, (axes,) = new_figure(max(5.4, 2.9 + cell_width * num_models), height)
        image = axes.imshow(
            np.ma.masked_invalid(losses[order]),
            aspect="auto",
            # One tone, dark where a model fits: what belongs together stands out from a pale ground.
            cmap="YlGnBu_r",
            norm=_colour_scale(losses),
            interpolation="nearest",
        )
        for edge in np.arange(0.5, num_models - 1):
            axes.axvline(edge, color="white", linewidth=1.2)
        marked = [(row, assignment[keys[i]]) for row, i in enumerate(order) if keys[i] in assignment]
        models, rows = np.array([model for _, model in marked]), np.array([row for row, _ in marked])
        if named:
            size = min(26.0, (row_height * 72 * 0.55) ** 2)
            axes.scatter(models, rows, s=size, facecolor="white", edgecolor=INK, linewidth=0.7)
        else:
            # Dots would run into each other, and a white line looks like the edge of a column; the dark one is the
            # outline on a pale ground.
            for colour, width in ((INK, 3.4), (COLOURS[1], 2.0)):
                axes.vlines(models, rows - 0.5, rows + 0.5, color=colour, linewidth=width)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(range(num_models), [str(model) for model in range(num_models)])
        axes.set_xlabel(f"model (a {'dot' if named else 'line'}: the client's own)")
        names = [short(keys[row]) for row in order] if named else []
        letters = min(8.5, row_height * 72 * 0.62)
        axes.set_yticks(range(len(names)), names, fontsize=letters)
        groups = [f"cluster {truth[keys[row]]}" if keys[row] in truth else None for row in order]
        # A letter is about 0.6 of its height wide; measuring the names would take a drawing of the whole.
        name_groups(axes, groups, 0.6 * letters * max(map(len, names), default=0) + 4 * named)
        length = min(0.95 * (height - 1.3), _LONGEST_BAR)
        bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=length / 0.13, shrink=length / (height - 1.0))
        bar.outline.set_visible(False)
        if isinstance(image.norm, LogNorm):
            bar.ax.yaxis.set_major_locator(LogLocator(subs=_ticks(losses, length)))
            bar.ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.ax.tick_params(length=0, which="both", labelcolor=QUIET)
        bar.set_label("mean training loss")
        axes.set_title("Loss of every model on every client")
        figure.save(path)
    return True
