"""Items of `florets reproduce`: a table or figure as rows (data) and columns (methods) of runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from florets.papers.references import Reference

BLOCK = 5
"""Seeds that are run before what comes a step later; see `Line.after`."""


@dataclass(frozen=True)
class Line:
    """A row (data) or a column (method) of a table.

    Attributes
    ----------
    name
        The word that means it in the file, and on the command line.
    overrides
        Keys of all of its runs, by name, as on the command line.
    after
        Steps by which its runs come later: the first are those with the smallest sum of row's and column's steps and
        one for every `BLOCK` seeds.
    seeds
        Of a row: number of seeds where it is not the item's.
    leave_out
        Of a row: columns that say nothing there.
    for_columns
        Of a row: keys of single columns' runs.
    """

    name: str
    label: str
    overrides: Mapping[str, str]
    after: int = 0
    seeds: int | None = None
    leave_out: tuple[str, ...] = ()
    for_columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes
    ----------
    name
        Its file's name below papers/, without the ending.
    source
        Where it is published, with page and table; empty where it is ours.
    cut, cut_keys
        What this scale leaves out, in words, and the keys that do so.
    measures
        Names of `measures.MEASURES`, or `<name> - <column>` for the paired difference.
    plot
        ``{kind: grid, measure: ...}``, ``{kind: rows, measures: [...]}``, ``{kind: curves, measure: ...}``, or of
        runs that keep what they cluster ``{kind: features}`` or ``{kind: singular_values}``.
    """

    name: str
    title: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    measures: tuple[str, ...]
    seeds: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    about: str = ""
    cut: str = ""
    cut_keys: frozenset[str] = frozenset()
    plot: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
