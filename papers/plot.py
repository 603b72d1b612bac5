"""The plot of an item: its grid in colours, lines over rows or rounds, or what single runs cluster and end with."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.colors import Normalize

from florets.conf.problems import ConfigError
from florets.papers.cells import Place
from florets.papers.item import Line
from florets.papers.table import Matrix, Table
from florets.reports import figures
from florets.reports.clients import read_clients
from florets.reports.folder import MARKER, naming
from florets.reports.run_figures import (
    Spectrum,
    features_figure,
    losses_of,
    singular_values_figure,
    spectra_of,
    sweep_figure,
)
from florets.reports.summary import Curves, RoundLine, read_lines

_OF_RUNS = {"features": features_figure, "singular_values": singular_values_figure}
"""Plots of single runs, one for each row."""
OF_CELLS = ("grid", "rows", "ranks")
"""Plots that show measures alone, and no files of runs."""

_LETTERS = 90
"""Of the names of all rows, as many as fit side by side."""
_LINE = 18
"""Letters of a name after which it is broken."""


def draw(table: Table, folder: Path) -> list[Path]:
    """Draw what the item's file asks for into ``folder``; return the pictures, none before a cell is finished."""
    with naming(folder):
        return [
            path
            for row, picture in pictures(table)
            for path in picture.save(folder / ("plot.png" if row is None else f"plot-{row.name}.png"))
        ]


def pictures(table: Table) -> Iterator[tuple[Line | None, figures.Picture]]:
    """Yield the pictures that the item's file asks for, with the row that each is of; None: it is of all."""
    plot = table.item.plot
    if not plot or not table.states["finished"]:
        return
    if plot["kind"] == "curves":
        yield from _curves(table)
        return
    if plot["kind"] == "grid":
        picture = _grid(table, plot["measure"])
    elif plot["kind"] == "rows":
        picture = rows_figure(table, plot["measures"])
    elif plot["kind"] == "ranks":
        picture = _ranks(table, plot["measure"])
    elif plot["kind"] == "losses":
        yield from _losses(table)
        return
    else:
        picture = _OF_RUNS[plot["kind"]](_spectra(table))
    if picture is not None:
        yield None, picture


def without_folders(table: Table) -> list[str]:
    """Return the finished cells whose runs' folders are not there."""
    return [
        f"{place.row.name}/{place.column.name}/seed-{seed}"
        for place in table.places
        for seed in table.finished(place)
        if not (place.folder / f"seed-{seed}" / MARKER).is_file()
    ]


def is_bounded(measure: str) -> bool:
    """Return whether a measure lies between 0 and 1, whatever the cells have given."""
    return measure in ("right_k", "recovered", "ari", "ari_at_10")


@figures.styled()
def _grid(table: Table, measure: str) -> figures.Picture | None:
    """Return each place coloured by its mean, with the entry's text; what is not finished stays blank."""
    matrix = table.matrix(measure)
    rows = [row for row in table.item.rows if row.name in matrix.rows]
    columns = [c for c in table.item.columns if any(key[1] == c.name for key in matrix.entries)]
    if not rows:
        return None
    entries = [[matrix.entries.get((row.name, column.name)) for column in columns] for row in rows]
    means = np.array([[np.nan if entry is None else entry.spread.mean for entry in line] for line in entries])
    picture, (axes,) = figures.stacked(2.6 + 1.15 * len(columns), 1.5 + 0.36 * len(rows))
    scale = Normalize(0, 1) if is_bounded(measure) else None
    image = figures.heat_map(axes, means, [row.label for row in rows], (), norm=scale, fonts=9)
    axes.set_xticks(range(len(columns)), [column.label for column in columns], rotation=30, ha="right", fontsize=9)
    # What stands in brackets gets a separate line: a column is narrow.
    texts = [
        ["" if entry is None else re.sub(r" (?=[\[(]|after)", "\n", entry.text) for entry in line] for line in entries
    ]
    lacking = np.array([[entry is not None and not entry.spread.number for entry in line] for line in entries])
    figures.write_cells(axes, image, texts, 7, quiet=lacking)
    axes.set_title(matrix.label)
    return picture


@figures.styled()
def _ranks(table: Table, measure: str) -> figures.Picture | None:
    """Return the diagram of critical differences: mean ranks, and bars over methods that do not differ.

    Source: Demsar (JMLR 2006), Fig. 1. None where too few methods have a score in every row.
    """
    found = table.ranking(measure)
    names, alike = found.complete, found.alike
    if found.difference is None:
        return None
    labels = {column.name: column.label for column in table.item.columns}
    half = (len(names) + 1) // 2
    bottom = half + 0.6 * len(alike) + 1
    picture, (axes,) = figures.stacked(8.4, 1.0 + 0.24 * bottom)
    low, high = 1.0, float(len(names))
    axes.set(xlim=(low - 0.3 * (high - low), high + 0.3 * (high - low)), ylim=(-bottom, 1.8))
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.hlines(0, low, high, color=figures.INK, linewidth=1)
    for tick in range(1, len(names) + 1):
        axes.vlines(tick, 0, 0.25, color=figures.INK, linewidth=0.8)
        if tick in (1, len(names)) or tick % 5 == 0:
            axes.text(tick, 0.4, str(tick), ha="center", va="bottom", fontsize=9, color=figures.QUIET)
    axes.hlines(1.5, low, min(low + found.difference, high), color=figures.INK, linewidth=1.5)
    axes.text(low, 1.6, f"critical difference {found.difference:.1f}", fontsize=9, color=figures.QUIET, va="bottom")
    for place, (first, last) in enumerate(alike):
        ends = found.ranks[first] - 0.1, found.ranks[last] + 0.1
        axes.hlines(-0.6 * (place + 1), *ends, color=figures.COLOURS[0], linewidth=3)
    for place, name in enumerate(names):
        left = place < half
        height = -0.6 * len(alike) - (place + 1 if left else len(names) - place)
        side, where = ("right", low - 0.02 * high) if left else ("left", high + 0.02 * high)
        axes.plot([found.ranks[name]] * 2 + [where], [0, height, height], color=figures.QUIET, linewidth=0.8)
        text = f"{labels[name]}  {found.ranks[name]:.1f}" if left else f"{found.ranks[name]:.1f}  {labels[name]}"
        axes.text(where, height, text, ha=side, va="center", fontsize=9)
    axes.set_title("Mean rank")
    return picture


@figures.styled()
def rows_figure(table: Table, measures: Sequence[str]) -> figures.Picture | None:
    """Return a figure of the columns' means over the rows with a band of one standard deviation.

    It has a panel for each measure. A row in which no cell of a column is finished is a gap in its line. None where
    no cell has a value.
    """
    panels = {name: lines for name in measures if (lines := row_lines(table.matrix(name), table))}
    if not panels:
        return None
    picture, rows = figures.stacked(8.4, 1.2 + 2.4 * len(panels), len(panels))
    for axes, (name, lines) in zip(rows, panels.items(), strict=True):
        for line in lines.values():
            figures.draw_line(axes, line, 1.0 if is_bounded(name) else None)
        figures.tidy(axes)
        # Asked for, the limits are those of what was drawn, which the labels need.
        low, high = axes.get_ylim()
        axes.set_ylim(*((min(-0.06, low), 1.06) if is_bounded(name) else (low, high)))
        axes.set_title(table.matrix(name).label)
        figures.label_ends(axes, list(lines.values()))
    labels = [fill(row.label, _LINE) for row in table.item.rows]
    crowded = max(len(line) for label in labels for line in label.splitlines()) * len(labels) > _LETTERS
    rows[-1].set_xticks(range(len(labels)), labels, fontsize=9)
    for text in rows[-1].get_xticklabels() if crowded else ():
        text.set(rotation=30, ha="right")
    rows[-1].set_xlabel("band: ± std over seeds")
    return picture


def row_lines(matrix: Matrix, table: Table) -> dict[str, figures.Line]:
    """Return the line over the rows of each column that has one."""
    lines: dict[str, figures.Line] = {}
    for number, column in enumerate(table.item.columns):
        entries = [matrix.entries.get((row.name, column.name)) for row in table.item.rows]
        mean = np.array([np.nan if entry is None else entry.spread.mean for entry in entries])
        std = np.nan_to_num([0.0 if entry is None else entry.spread.deviation for entry in entries])
        if np.isfinite(mean).any():
            lines[column.name] = figures.Line(
                np.arange(len(entries)), mean, std, column.label, figures.line_style(number)
            )
    return lines


def _curves(table: Table) -> Iterator[tuple[Line | None, figures.Picture]]:
    """Yield the mean over seeds of each column, a picture for each row; rows of one column share a picture."""
    rows = {row.name: row for row in table.item.rows}
    shared = len(table.item.columns) == 1
    curves: dict[str, dict[str, list[Sequence[Curves]]]] = {}
    for place in table.places:
        runs: list[Sequence[Curves]] = [lines for seed in table.finished(place) if (lines := run_lines(place, seed))]
        if runs:
            name, label = ("", place.row.label) if shared else (place.row.name, place.column.label)
            curves.setdefault(name, {})[label] = runs
    for name, of_picture in curves.items():
        if picture := sweep_figure(of_picture, table.item.columns[0].label if shared else rows[name].label):
            yield None if shared or len(rows) == 1 else rows[name], picture


def _losses(table: Table) -> Iterator[tuple[Line | None, figures.Picture]]:
    """Yield the loss of every model on every client at the end of the first finished run of each row."""
    drawn = set()
    for place in table.places:
        runs = [place.folder / f"seed-{seed}" for seed in table.finished(place) if run_lines(place, seed)]
        if runs and place.row.name not in drawn and (picture := losses_of(min(runs), read_clients(min(runs)))):
            drawn.add(place.row.name)
            yield place.row, picture


def run_lines(place: Place, seed: int) -> Sequence[RoundLine]:
    """Return the rounds of a run, none where its folder is not there: its record outlives one that was removed."""
    folder = place.folder / f"seed-{seed}"
    try:
        return read_lines(folder) if (folder / MARKER).is_file() else ()
    except ValueError as error:
        raise ConfigError(
            [f"{folder / MARKER}: cannot be read ({error}); remove {folder} and {folder.name}.json to run it anew."]
        ) from None


def _spectra(table: Table) -> dict[str, list[Spectrum]]:
    """Return what the first finished run of each row has kept of its clusterings, by the row's label."""
    found: dict[str, list[Spectrum]] = {}
    for place in table.places:
        seeds = [seed for seed in table.finished(place) if run_lines(place, seed)]
        if seeds and not found.get(place.row.label):
            found[place.row.label] = spectra_of(place.folder / f"seed-{min(seeds)}")
    return found
