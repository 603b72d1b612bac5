"""Tables of means with the best marked: as text, Markdown, HTML, LaTeX and data frames."""

from __future__ import annotations

import csv
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from florets.reports.folder import whole_file

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

_SIGNS = {"±": r"$\pm$", "·": r"$\cdot$", "≥": r"$\geq$", "<": "$<$"}
"""Signs that LaTeX knows in mathematics alone."""
_CENTERED: Literal["centering"] = "centering"


@dataclass(frozen=True)
class Cell:
    """A place of a table: its text, its mean by which the best is chosen, and whether it is marked as the best."""

    text: str
    value: float = math.nan
    is_best: bool = False


@dataclass(frozen=True, repr=False)
class ResultTable:
    """A table of means ± standard deviations; a notebook shows it with the best in bold."""

    corner: str
    """Heading of the rows' names."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """What is written below it."""

    def marked(
        self, higher: Sequence[bool | None] | bool | None, along: Literal["rows", "columns"] = "columns"
    ) -> ResultTable:
        """Return the table with the best cells of each column, or row, marked; none where all show the same number.

        `higher` says whether a higher value is better, for all cells or for each column; None: neither is.
        """
        better = list(higher) if isinstance(higher, Sequence) else [higher] * len(self.columns)
        places = [[(i, j) for i in range(len(self.rows))] for j in range(len(self.columns))]
        if along == "rows":
            places = [[(i, j) for j in range(len(self.columns))] for i in range(len(self.rows))]
        cells = [list(row) for row in self.cells]
        for line in places:
            known = [(i, j) for i, j in line if better[j] is not None and math.isfinite(self.cells[i][j].value)]
            if len(known) < 2:
                continue
            choose = max if better[known[0][1]] else min
            i, j = choose(known, key=lambda place: self.cells[place[0]][place[1]].value)
            best = [place for place in known if self._number(*place) == self._number(i, j)]
            for i, j in best if len(best) < len(known) else ():
                cells[i][j] = replace(cells[i][j], is_best=True)
        return replace(self, cells=tuple(map(tuple, cells)))

    def _number(self, row: int, column: int) -> str:
        """Return the mean as a cell shows it."""
        return self.cells[row][column].text.split(" ", 1)[0]

    @property
    def turned(self) -> ResultTable:
        """The table with rows as columns."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            cells=tuple(zip(*self.cells, strict=True)) if self.rows else (),
        )

    @property
    def texts(self) -> list[list[str]]:
        """The texts without marks, the first row the head."""
        body = ([name, *(cell.text for cell in row)] for name, row in zip(self.rows, self.cells, strict=True))
        return [[self.corner, *self.columns], *body]

    @property
    def frame(self) -> pd.DataFrame:
        """The texts as a data frame, without marks."""
        return self._frame([[cell.text for cell in row] for row in self.cells])

    @property
    def means(self) -> pd.DataFrame:
        """The means as a data frame of numbers."""
        return self._frame([[cell.value for cell in row] for row in self.cells])

    def _frame(self, values: Sequence[Sequence[Any]]) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(values, pd.Index(self.rows, name=self.corner or None), list(self.columns))

    def markdown(self) -> str:
        """Return the table as Markdown, the best in bold."""
        body = [
            [name, *(f"**{cell.text}**" if cell.is_best else cell.text for cell in row)]
            for name, row in zip(self.rows, self.cells, strict=True)
        ]
        text = markdown_table([[self.corner, *self.columns], *body])
        return f"{text}\n\n{self.note}" if self.note else text

    def __repr__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"{self._styled('html', 'font-weight: bold').to_html()}{note}"

    def _styled(self, escape: str, bold: str) -> Styler:
        # What stands above the columns' names is printed in the corner.
        styler = self.frame.rename_axis(index=None, columns=self.corner or None).style
        marks = np.array([[bold if cell.is_best else "" for cell in row] for row in self.cells])
        styler = styler.apply(lambda frame: marks.reshape(frame.shape), axis=None).format(escape=escape)
        return styler.format_index(escape=escape, axis="index").format_index(escape=escape, axis="columns")

    def latex(self, caption: str = "", label: str = "") -> str:
        """Return the table as LaTeX for the package `booktabs`, the best in bold and names escaped.

        With `caption` or `label`, a `table` is around it.
        """
        styler = self._styled("latex", "textbf: --rwrap")
        columns, place = "l" + "r" * len(self.columns), _CENTERED if caption or label else None
        text: str = styler.to_latex(
            hrules=True, column_format=columns, caption=caption or None, label=label or None, position_float=place
        )
        for sign, latex in _SIGNS.items():
            text = text.replace(sign, latex)
        return text


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, whole or not at all; what is missing, None or NaN is an empty cell."""
    with whole_file(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        # NaN alone is unequal to itself.
        writer.writerows({name: value if value == value else None for name, value in row.items()} for row in rows)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of them the head, as a Markdown table that also reads well in a terminal."""
    # What would end a cell.
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
