"""The plot of an item: its grid in colours, curves over rows or rounds, or what CFL-GP's runs cluster."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context

from florets.conf.problems import ConfigError
from florets.reports.folder import MARKER, naming
from florets.reports.look import INK, QUIET, STYLE
from florets.reports.plots import new_figure
from florets.reports.spectrum_plot import (
    Spectrum,
    draw_feature_grid,
    draw_singular_values,
    read_spectra,
)
from florets.reports.summary import RoundLine, read_lines
from florets.server_app.reproduce.cells import Place
from florets.server_app.reproduce.curve_store import LinesOf
from florets.server_app.reproduce.row_plot import draw_rows, is_bounded
from florets.server_app.reproduce.table import Table
from florets.server_app.sweep.sweep_plots import draw_sweep

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
