"""The plot of an item: its grid in colours, curves over rows or rounds, or what CFL-GP's runs cluster."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib import rc_context

from florets.conf.problems import ConfigError
from florets.papers.cells import Place
from florets.papers.store import LinesOf
from florets.papers.table import Matrix, Table
from florets.reports.folder import MARKER, naming
from florets.reports.look import GRID, INK, QUIET, STYLE, line_style
from florets.reports.picture import Picture
from florets.reports.plots import Points, draw_curve, label_ends, new_figure
from florets.reports.spectrum_plot import (
    Spectrum,
    draw_feature_grid,
    draw_singular_values,
    read_spectra,
)
from florets.reports.summary import RoundLine, read_lines
from florets.studies.sweep.plots import draw_sweep

_LETTERS = 90
"""Of the names of all rows, as many as fit beside each other."""
_LINE = 18
"""Letters of a name after which it is broken."""


def draw_rows(table: Table, measures: Sequence[str], path: Path) -> list[Path]:
    """Draw `rows_figure` into a file; return it, nothing where there is nothing to draw."""
    figure = rows_figure(table, measures)
    if figure is None:
        return []
    figure.save(path)
    return [path]


def rows_figure(table: Table, measures: Sequence[str]) -> Picture | None:
    """Return a figure of the columns' means over the rows with a band of one standard deviation.

    It has a panel for each measure. A row in which no cell of a column is finished is a gap in its line. None where
    no cell has a value.
    """
    matrices = [matrix for name in measures if _points(matrix := table.matrix(name), table)]
    if not matrices:
        return None
    names = [column.name for column in table.item.columns]
    with rc_context(STYLE):
        figure, panels = new_figure(8.4, 1.2 + 2.4 * len(matrices), len(matrices))
        for axes, matrix in zip(panels, matrices, strict=True):
            ends, styles = [], []
            for column, (points, last) in _points(matrix, table).items():
                style = line_style(names.index(column))
                draw_curve(axes, points, "", is_bounded(matrix.name), **style)
                label = table.item.columns[names.index(column)].label
                ends.append((float(points[1][last]), label, str(style["color"])))
                styles.append(style)
            axes.grid(axis="y", color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.tick_params(length=0)
            # Asked for, the limits are those of what was drawn, which the labels need.
            low, high = axes.get_ylim()
            axes.set_ylim(*((min(-0.06, low), 1.06) if is_bounded(matrix.name) else (low, high)))
            axes.set_title(matrix.label[:1].upper() + matrix.label[1:])
            label_ends(axes, ends, styles)
        labels = [fill(row.label, _LINE) for row in table.item.rows]
        panels[-1].set_xticks(range(len(labels)), labels, fontsize=9)
        if max(len(line) for label in labels for line in label.splitlines()) * len(labels) > _LETTERS:
            for text in panels[-1].get_xticklabels():
                text.set(rotation=30, ha="right")
        panels[-1].set_xlabel("band: ± std over seeds")
    return figure


def is_bounded(measure: str) -> bool:
    """Return whether a measure lies between 0 and 1, whatever the cells have given."""
    return measure in ("right_k", "recovered", "ari", "ari_at_10")


def _points(matrix: Matrix, table: Table) -> dict[str, tuple[Points, int]]:
    """Return the line of each column that has one, and the index of the last row that it is known in."""
    lines: dict[str, tuple[Points, int]] = {}
    for column in table.item.columns:
        entries = [matrix.entries.get((row.name, column.name)) for row in table.item.rows]
        mean = np.array([np.nan if entry is None else entry.spread.mean for entry in entries])
        std = np.array([0.0 if entry is None else entry.spread.deviation for entry in entries])
        if (known := np.flatnonzero(np.isfinite(mean))).size:
            lines[column.name] = (np.arange(len(entries)), mean, np.nan_to_num(std)), int(known[-1])
    return lines


_OF_RUNS = {"features": draw_feature_grid, "singular_values": draw_singular_values}
"""Plots of single runs, one for each row."""

_CELL, _ROW = 1.15, 0.36
"""Inches of a column and of a row."""


def draw(table: Table, folder: Path, lines_of: LinesOf | None = None) -> list[Path]:
    """Draw what the item's file asks for into ``folder``; return the pictures, none before a cell is finished.

    Parameters
    ----------
    lines_of
        Where curves over the rounds are from; None: from the runs' folders.
    """
    plot = table.item.plot
    if not plot or not table.states["finished"]:
        return []
    with naming(folder):
        if plot["kind"] == "grid":
            return _draw_grid(table, plot["measure"], folder / "plot.png")
        if plot["kind"] == "rows":
            return draw_rows(table, plot["measures"], folder / "plot.png")
        if plot["kind"] in _OF_RUNS:
            path = folder / "plot.png"
            return [path] if _OF_RUNS[plot["kind"]](_spectra(table), path) else []
        return _draw_curves(table, folder, lines_of or run_lines)


def without_lines(table: Table) -> list[str]:
    """Return the finished cells that curves leave out, because their runs' folders were removed."""
    return without_folders(table) if table.item.plot.get("kind") == "curves" else []


def without_folders(table: Table) -> list[str]:
    """Return the finished cells whose runs' folders are not there."""
    return [
        f"{place.row.name}/{place.column.name}/seed-{seed}"
        for place in table.places
        for seed in finished(table, place)
        if not (place.folder / f"seed-{seed}" / MARKER).is_file()
    ]


def _draw_grid(table: Table, measure: str, path: Path) -> list[Path]:
    """Colour each place by its mean and write the entry's text into it; what is not finished stays blank."""
    matrix = table.matrix(measure)
    rows = [row for row in table.item.rows if row.name in matrix.rows]
    columns = [c for c in table.item.columns if any(key[1] == c.name for key in matrix.entries)]
    if not rows:
        return []
    entries = [[matrix.entries.get((row.name, column.name)) for column in columns] for row in rows]
    means = np.array([[np.nan if entry is None else entry.spread.mean for entry in line] for line in entries])
    with rc_context(STYLE):
        width = 2.6 + _CELL * len(columns)
        figure, (axes,) = new_figure(width, 1.5 + _ROW * len(rows))
        low, high = (0.0, 1.0) if is_bounded(measure) else (np.nanmin(means), np.nanmax(means))
        axes.imshow(np.ma.masked_invalid(means), aspect="auto", cmap="YlGnBu", vmin=low, vmax=high)
        for i, line in enumerate(entries):
            for j, entry in enumerate(line):
                if entry is None:
                    continue
                dark = np.isfinite(means[i, j]) and means[i, j] > low + 0.6 * (high - low)
                colour = "white" if dark else INK if entry.spread.number else QUIET
                # What stands in brackets gets a line of its own: a column is narrow.
                text = entry.text.replace(" [", "\n[").replace(" (", "\n(").replace(" after", "\nafter")
                axes.text(j, i, text, ha="center", va="center", fontsize=7, linespacing=1.1, color=colour)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(
            range(len(columns)), [column.label for column in columns], rotation=30, ha="right", fontsize=9
        )
        axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=9)
        axes.set_title(matrix.label[:1].upper() + matrix.label[1:])
        figure.save(path)
    return [path]


def _draw_curves(table: Table, folder: Path, lines_of: LinesOf) -> list[Path]:
    """Draw the mean over seeds of each column, a picture for each row; rows of one column share a picture."""
    shared = len(table.item.columns) == 1
    curves: dict[str, dict[str, list[Sequence[RoundLine]]]] = {}
    for place in table.places:
        if runs := [*filter(None, (lines_of(place, seed) for seed in finished(table, place)))]:
            picture, label = ("", place.row.label) if shared else (place.row.name, place.column.label)
            curves.setdefault(picture, {})[label] = runs
    titles = {row.name: row.label for row in table.item.rows}
    drawn = []
    for picture, of_picture in curves.items():
        path = folder / ("plot.png" if shared or len(titles) == 1 else f"plot-{picture}.png")
        if draw_sweep(of_picture, path, table.item.columns[0].label if shared else titles[picture]):
            drawn.append(path)
    return drawn


def run_lines(place: Place, seed: int) -> Sequence[RoundLine]:
    """Return the rounds of a run, none where its folder is not there: its record outlives one that was removed."""
    folder = place.folder / f"seed-{seed}"
    try:
        return read_lines(folder) if (folder / MARKER).is_file() else ()
    except ValueError as error:
        raise ConfigError(
            [f"{folder / MARKER}: cannot be read ({error}); remove {folder} and {folder.name}.json to run it anew."]
        ) from error


def finished(table: Table, place: Place) -> list[int]:
    """Return the seeds whose cells at a place are finished."""
    found = table.found.get((place.row.name, place.column.name), {})
    return sorted(seed for seed, progress in found.items() if progress.state == "finished")


def _spectra(table: Table) -> dict[str, list[Spectrum]]:
    """Return what the first finished run of each row has kept of its clusterings, by the row's label."""
    found: dict[str, list[Spectrum]] = {}
    for place in table.places:
        seeds = [seed for seed in finished(table, place) if run_lines(place, seed)]
        if seeds and not found.get(place.row.label):
            found[place.row.label] = read_spectra(place.folder / f"seed-{min(seeds)}")
    return found
