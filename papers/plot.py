"""The plot of an item: lines over rows or rounds, or what single runs cluster and end with."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np

from florets.conf.saved import reading
from florets.papers.cells import Place
from florets.papers.item import Line
from florets.papers.measures import read_measure
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

_PANELS = 3
"""Measures of an item that its lines over rows are drawn of."""
_LETTERS = 90
"""Of the names of all rows, as many as fit side by side."""
_LINE = 18
"""Letters of a name after which it is broken."""

Pictures = Iterator[tuple[Line | None, figures.Picture]]


def draw(table: Table, folder: Path) -> list[Path]:
    """Draw what the item's file asks for into ``folder``; return the pictures, none before a cell is finished."""
    with naming(folder):
        return [
            path
            for row, picture in pictures(table)
            for path in picture.save(folder / ("plot.png" if row is None else f"plot-{row.name}.png"))
        ]


def pictures(table: Table) -> Pictures:
    """Yield the pictures that the item's file asks for, with the row that each is of; None: it is of all."""
    kind, picture = table.item.plot, None
    if not table.states["finished"]:
        return
    if kind == "curves":
        yield from _curves(table)
    elif kind == "losses":
        yield from _losses(table)
    elif kind == "rows":
        plain = [name for name in table.item.measures if read_measure(name)[1] is None]
        picture = rows_figure(table, plain[:_PANELS])
    elif kind == "features":
        picture = features_figure(_spectra(table))
    elif kind == "singular_values":
        picture = singular_values_figure(_spectra(table))
    if picture is not None:
        yield None, picture


def without_folders(table: Table) -> list[str]:
    """Return the finished cells whose runs' folders are not there; none where the plot needs no folders."""
    return [
        f"{place.row.name}/{place.column.name}/seed-{seed}"
        for place in table.places
        for seed in table.finished(place)
        if table.item.plot != "rows" and not (place.folder / f"seed-{seed}" / MARKER).is_file()
    ]


def _is_bounded(measure: str) -> bool:
    """Return whether a measure lies between 0 and 1, whatever the cells have given."""
    return measure in ("right_k", "recovered", "ari", "ari_at_10")


@figures.styled()
def rows_figure(table: Table, measures: Sequence[str]) -> figures.Picture | None:
    """Return a figure of the columns' means over the rows with a band of one standard deviation, a panel a measure.

    A row in which no cell of a column is finished is a gap in its line. None where no cell has a value.
    """
    panels = {name: lines for name in measures if (lines := row_lines(table.matrix(name), table))}
    if not panels:
        return None
    picture, rows = figures.stacked(8.4, 1.2 + 2.4 * len(panels), len(panels))
    for axes, (name, lines) in zip(rows, panels.items(), strict=True):
        for line in lines.values():
            figures.draw_line(axes, line, 1.0 if _is_bounded(name) else None)
        figures.tidy(axes)
        if _is_bounded(name):
            axes.set_ylim(min(-0.06, axes.get_ylim()[0]), 1.06)
        axes.set_title(table.matrix(name).label)
        figures.name_lines(axes, list(lines.values()))
    labels = [fill(row.label, _LINE) for row in table.item.rows.values()]
    crowded = max(len(line) for label in labels for line in label.splitlines()) * len(labels) > _LETTERS
    rows[-1].set_xticks(range(len(labels)), labels, fontsize=9)
    for text in rows[-1].get_xticklabels() if crowded else ():
        text.set(rotation=30, ha="right")
    rows[-1].set_xlabel("band: ± std over seeds")
    return picture


def row_lines(matrix: Matrix, table: Table) -> dict[str, figures.Line]:
    """Return the line over the rows of each column that has one."""
    lines: dict[str, figures.Line] = {}
    for number, column in enumerate(table.item.columns.values()):
        entries = [matrix.entries.get((row, column.name)) for row in table.item.rows]
        mean = np.array([np.nan if entry is None else entry.spread.mean for entry in entries])
        std = np.nan_to_num([0.0 if entry is None else entry.spread.deviation for entry in entries])
        if np.isfinite(mean).any():
            style = figures.line_style(number)
            lines[column.name] = figures.Line(np.arange(len(entries)), mean, std, column.label, style)
    return lines


def _curves(table: Table) -> Pictures:
    """Yield the mean over seeds of each column, a picture for each row; rows of one column share a picture."""
    shared = len(table.item.columns) == 1
    curves: dict[str, dict[str, list[Sequence[Curves]]]] = {}
    for place in table.places:
        runs: list[Sequence[Curves]] = [lines for seed in table.finished(place) if (lines := run_lines(place, seed))]
        if runs:
            name, label = ("", place.row.label) if shared else (place.row.name, place.column.label)
            curves.setdefault(name, {})[label] = runs
    for name, of_picture in curves.items():
        row = None if shared else table.item.rows[name]
        title = next(iter(table.item.columns.values())).label if row is None else row.label
        if picture := sweep_figure(of_picture, title):
            yield row if len(table.item.rows) > 1 else None, picture


def _losses(table: Table) -> Pictures:
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
    if not (folder / MARKER).is_file():
        return ()
    with reading(folder / MARKER, f"remove {folder} and {folder.name}.json to run it anew"):
        return read_lines(folder)


def _spectra(table: Table) -> dict[str, list[Spectrum]]:
    """Return what the first finished run of each row has kept of its clusterings, by the row's label."""
    found: dict[str, list[Spectrum]] = {}
    for place in table.places:
        seeds = [seed for seed in table.finished(place) if run_lines(place, seed)]
        if seeds and not found.get(place.row.label):
            found[place.row.label] = spectra_of(place.folder / f"seed-{min(seeds)}")
    return found
