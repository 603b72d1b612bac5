"""The plot of an item over its rows: a line for each column, for rows that are steps of one quantity."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context

from florets.reports.look import COLOURS, GRID, STYLE
from florets.server_app.reproduce.table import Matrix, Table
from florets.server_app.results.plots import Points, draw_curve, label_ends, new_figure, save

_LETTERS = 90
"""Of the names of all rows, as many as fit beside each other."""


def draw_rows(table: Table, measures: Sequence[str], path: Path) -> list[Path]:
    """Draw the means of the columns over the rows with a band of one standard deviation, a panel for each measure.

    A row in which no cell of a column is finished is a gap in its line.
    """
    matrices = [matrix for name in measures if _points(matrix := table.matrix(name), table)]
    if not matrices:
        return []
    names = [column.name for column in table.item.columns]
    with rc_context(STYLE):
        figure, panels = new_figure(8.4, 0.9 + 2.4 * len(matrices), len(matrices))
        for axes, matrix in zip(panels, matrices, strict=True):
            ends = []
            for column, (points, last) in _points(matrix, table).items():
                colour = COLOURS[names.index(column) % len(COLOURS)]
                draw_curve(axes, points, colour, is_bounded(matrix.name))
                ends.append((float(points[1][last]), table.item.columns[names.index(column)].label, colour))
            axes.grid(axis="y", color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.tick_params(length=0)
            # Asked for, the limits are those of what was drawn, which the labels need.
            low, high = axes.get_ylim()
            axes.set_ylim(*((min(-0.06, low), 1.06) if is_bounded(matrix.name) else (low, high)))
            axes.set_title(matrix.label[:1].upper() + matrix.label[1:])
            label_ends(axes, ends)
        labels = [row.label for row in table.item.rows]
        panels[-1].set_xticks(range(len(labels)), labels, fontsize=9)
        if max(map(len, labels)) * len(labels) > _LETTERS:
            for text in panels[-1].get_xticklabels():
                text.set(rotation=30, ha="right")
        panels[-1].set_xlabel("band: ± std over seeds")
        save(figure, path)
    return [path]


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
