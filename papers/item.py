"""An item of `florets reproduce`: a table or figure as rows (data) and columns (methods) of runs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from florets.papers.measures import read_measure
from florets.papers.references import Reason, Reference

Names = tuple[str, ...]
Keys = Mapping[str, str]
"""Overrides of runs by key; a file has them as a list of key=value texts."""
Reasons = tuple[Reason, ...]
"""A file has a text, a mapping of a side to a text, or a list of these."""
SETTINGS = ("chosen", "default")
_ONCE: Any = {"file": False}
"""Metadata of what is no key of a file."""


@dataclass(frozen=True)
class Line:
    """A row (data) or a column (method) of a table.

    Attributes
    ----------
    name
        The word that means it in the file, and on the command line.
    seeds, leave_out, for_columns
        Of a row: number of seeds where it is not the item's, columns that say nothing there, and keys of single
        columns' runs.
    choose
        Of a column: values of keys among which validation data choose, in each row.
    folder
        Of a row: the folder of its data below `data_dir`.
    kind
        Of a row: what kind of data these are, in words; columns are compared within each kind.
    """

    name: str = field(metadata=_ONCE)
    label: str
    overrides: Keys
    seeds: int | None = None
    leave_out: Names = ()
    for_columns: Mapping[str, Keys] = field(default_factory=dict)
    choose: Mapping[str, Names] = field(default_factory=dict)
    folder: str = ""
    kind: str = ""


class Figure(NamedTuple):
    """A published figure; see `Reference`."""

    value: float | None
    spread: float | None = None
    rounding: float = 0.0
    printed: str = ""


@dataclass(frozen=True)
class Published:
    """Values of one source and one measure: by row and column."""

    source: str
    measure: str
    values: Mapping[str, Mapping[str, Figure]]
    data: str = ""
    why: Mapping[str, Reasons] = field(default_factory=dict)


@dataclass(frozen=True)
class Small:
    """What the small scale cuts; without rows and columns it has all."""

    cut: str
    seeds: int = 0
    overrides: Keys = field(default_factory=dict)
    rows: Names | None = None
    columns: Names | None = None
    for_rows: Mapping[str, Keys] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes
    ----------
    name
        ``<paper>/<item>``, as its heading in the paper's file has it; of a file of one's own the file's name.
    measures
        Names of `measures.MEASURES`, or `<name> - <column>` for the paired difference.
    source
        Where it is published, with page and table; empty where it is ours.
    plot
        ``{kind: grid, measure: ...}``, ``{kind: rows, measures: [...]}``, ``{kind: curves, measure: ...}``,
        ``{kind: ranks, measure: skill}``, or of runs that keep what they cluster ``{kind: features}`` or
        ``{kind: singular_values}``, or of runs with ``loss_matrix=true`` ``{kind: losses}``.
    settings
        ``chosen`` by validation data where a column says among which, or each method's ``default``.
    why
        Reasons for what is off, by row, column or ``<row>.<column>``; those of a block of `paper` win over them.
    cut, cut_keys
        What this scale leaves out, in words, and the keys that do so.
    """

    name: str = field(metadata=_ONCE)
    title: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    measures: Names
    seeds: int
    extends: str = ""
    overrides: Keys = field(default_factory=dict)
    source: str = ""
    about: str = ""
    plot: Mapping[str, Any] = field(default_factory=dict)
    settings: str = SETTINGS[0]
    paper: tuple[Published, ...] = ()
    why: Mapping[str, Reasons] = field(default_factory=dict)
    small: Small | None = None
    references: tuple[Reference, ...] = field(default=(), metadata=_ONCE)
    cut: str = field(default="", metadata=_ONCE)
    cut_keys: frozenset[str] = field(default=frozenset(), metadata=_ONCE)

    @property
    def ranked(self) -> str | None:
        """The measure by which columns are ranked, None where they are not."""
        return self.plot["measure"] if self.plot.get("kind") == "ranks" else None

    def narrowed(
        self, rows: Collection[str] | None, columns: Collection[str] | None, measures: Iterable[str] | None = None
    ) -> "Item":
        """Return the item with these rows, columns and measures alone, and what is published of them; None: all."""
        own_rows = tuple(row for row in self.rows if rows is None or row.name in rows)
        own_columns = tuple(column for column in self.columns if columns is None or column.name in columns)
        # A difference needs both of its columns.
        others = (None, *(column.name for column in own_columns))
        kept = tuple(name for name in measures or self.measures if read_measure(name)[1] in others)
        places = {(row.name, column.name) for row in own_rows for column in own_columns}
        references = tuple(r for r in self.references if (r.row, r.column) in places and r.measure in kept)
        return replace(self, rows=own_rows, columns=own_columns, measures=kept, references=references)
