"""The plot of an item over its rows: a line for each column, for rows that are steps of one quantity."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib import rc_context

from florets.reports.look import GRID, STYLE, line_style
from florets.reports.picture import Picture
from florets.reports.plots import Points, draw_curve, label_ends, new_figure
from florets.server_app.reproduce.table import Matrix, Table

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
