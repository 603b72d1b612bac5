"""Tables of runs inside a page of text: every figure between two markers comes from the results folders."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from florets.conf.problems import ConfigError
from florets.server_app.reproduce.items import Item
from florets.server_app.reproduce.measures import read_measure
from florets.server_app.reproduce.table import Table
from florets.server_app.reproduce.written import compared_grid, grid, state_words, verdict_words
from florets.server_app.sweep.sweep_report import markdown_table

_BLOCK = re.compile(
    r"(?P<begin><!-- reproduce (?P<words>[^\n]*?) -->\n)(?P<old>.*?)(?P<end><!-- end of reproduce -->)", re.DOTALL
)
_BEGIN = re.compile(r"<!-- reproduce [^\n]*-->")


@dataclass(frozen=True)
class Made:
    """A page's new text, and of every block its words with what it says or why it was left."""

    text: str
    told: tuple[str, ...]


def made_page(text: str, table_of: Callable[[Sequence[str]], tuple[Table, str]]) -> Made:
    """Return a page with its blocks made anew.

    A block begins with ``<!-- reproduce <item> [scale=...] [rows=...] [columns=...] [measures=...] -->`` on a line of
    its own, and ends with ``<!-- end of reproduce -->``. A block without a finished cell is left as it is, so that a
    machine that has not the runs does not empty the page.

    Parameters
    ----------
    text
        The page.
    table_of
        Returns the table that a block's words name, and the command that makes it.

    Raises
    ------
    ConfigError
        If a block has no end, or its words name nothing.
    """
    told: list[str] = []
    if (begun := len(_BEGIN.findall(text))) != (whole := len(_BLOCK.findall(text))):
        raise ConfigError([f"{begun} blocks begin with <!-- reproduce, {whole} end with <!-- end of reproduce -->."])

    def block(found: re.Match[str]) -> str:
        words = found["words"].split()
        measures = [word.removeprefix("measures=") for word in words if word.startswith("measures=")]
        table, command = table_of([word for word in words if not word.startswith("measures=")])
        if not table.states["finished"]:
            told.append(f"{found['words']}: no cell is finished; left as it was")
            return found[0]
        told.append(f"{found['words']}: {state_words(table)}")
        if measures:
            table = replace(table, item=_with_measures(table.item, measures[-1].split(",")))
        return f"{found['begin']}\n{_tables(table, command)}\n\n{found['end']}"

    return Made(_BLOCK.sub(block, text), tuple(told))


def narrowed(item: Item, chosen: Mapping[str, Sequence[str]]) -> Item:
    """Return an item with the chosen rows and columns alone, and what is published of them.

    Parameters
    ----------
    chosen
        Names of ``rows`` and of ``columns``; of a kind that is not there, all.
    """
    rows = tuple(row for row in item.rows if row.name in chosen.get("rows", (row.name,)))
    columns = tuple(column for column in item.columns if column.name in chosen.get("columns", (column.name,)))
    names = {line.name for line in (*rows, *columns)}
    return replace(
        item,
        rows=rows,
        columns=columns,
        measures=tuple(name for name in item.measures if read_measure(name)[1] in (None, *names)),
        references=tuple(entry for entry in item.references if {entry.row, entry.column} <= names),
    )


def _with_measures(item: Item, names: Sequence[str]) -> Item:
    if unknown := [name for name in names if name not in item.measures]:
        raise ConfigError(
            [f"measures={','.join(unknown)}: {item.name} has no such measure. It has: {', '.join(item.measures)}."]
        )
    references = tuple(entry for entry in item.references if entry.measure in names)
    return replace(item, measures=tuple(names), references=references)


def _tables(table: Table, command: str) -> str:
    parts = [f"`{command}`: {state_words(table)}."]
    if table.item.cut:
        parts.append(f"Small scale: {table.item.cut}.")
    for matrix in table.matrices():
        if matrix.rows:
            parts += [f"{matrix.label[:1].upper()}{matrix.label[1:]}:", markdown_table(grid(table, matrix))]
    if len(compared := compared_grid(table)) > 1:
        parts += [f"{verdict_words(table)}:", markdown_table(compared)]
    return "\n\n".join(parts)
