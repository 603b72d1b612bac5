"""Items of `florets reproduce`: a table or figure as rows (data) and columns (methods) of runs, read from YAML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from florets.conf.compose import CONFIG_DIR
from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError, did_you_mean
from florets.server_app.reproduce.measures import read_measure
from florets.server_app.reproduce.references import Reference, read_paper
from florets.server_app.reproduce.yaml_file import read_yaml

FOLDER = CONFIG_DIR / "reproduce"
SCALES = ("paper", "small")
BLOCK = 5
"""Seeds that are run before what comes a step later; see `Line.after`."""


@dataclass(frozen=True)
class Line:
    """A row (data) or a column (method) of a table.

    Attributes
    ----------
    name
        The word that means it in the file, and on the command line.
    label
        What the table shows.
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
        Its file's name below conf/reproduce/, without the ending.
    source
        Where it is published, with page and table; empty where it is ours.
    cut
        What this scale leaves out.
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
    plot: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()


def item_names() -> list[str]:
    """Return the names of all items, sorted."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def find_item(name: str, scale: str = "paper") -> Item:
    """Return the item of a name at one scale; a name that ends in .yaml is a file of one's own.

    Raises
    ------
    ConfigError
        If there is none, or its file is faulty.
    """
    if scale not in SCALES:
        raise ConfigError([f"scale={scale}: must be {' or '.join(SCALES)}."])
    if name.endswith(".yaml"):
        return read_item(Path(name).expanduser(), Path(name).stem, scale)
    known = item_names()
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(
            [f"{name}: there is no such item.{hint} There are: {', '.join(known)}; or name a .yaml file of your own."]
        )
    return read_item(FOLDER / f"{name}.yaml", name, scale)


def read_item(path: Path, name: str, scale: str = "paper") -> Item:
    """Return the item that a file describes.

    Raises
    ------
    ConfigError
        With every problem of the file.
    """
    try:
        values = read_yaml(path)
    except FileNotFoundError as error:
        raise ConfigError(
            [f"{path}: there is no such file; florets reproduce --list names the items that come with it."]
        ) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        told = error.strerror if isinstance(error, OSError) else None
        reason = " ".join((told or str(error)).split()) or type(error).__name__
        raise ConfigError([f"{path}: cannot be read ({reason})."]) from error
    reader = _Reader(str(path))
    item = reader.item(values, name)
    if item is not None and scale == "small":
        if "small" not in values:
            raise ConfigError([f"scale=small: {name} has one scale alone; leave it out."])
        item = reader.smaller(item, values["small"])
    if reader.problems or item is None:
        raise ConfigError(reader.problems)
    return item


def as_mapping(overrides: Sequence[str], problems: list[str]) -> dict[str, str]:
    """Return `key=value` texts by key; what cannot be read is appended to `problems`."""
    read_overrides(overrides, problems)
    return {key: value for key, _, value in (text.partition("=") for text in overrides)}


_ITEM_KEYS = (
    *("title", "source", "about", "seeds", "overrides", "rows", "columns", "measures", "plot", "paper", "references"),
    "small",
)
_LINE_KEYS = ("label", "overrides", "after", "seeds", "leave_out", "for_columns")
_SMALL_KEYS = ("cut", "seeds", "overrides", "rows", "columns", "for_rows")
_REFERENCE_KEYS = ("row", "column", "measure", "value", "spread")
_SMALL = "small scale"
_PLOTS = {"grid": ("measure",), "rows": ("measures",), "curves": ("measure",), "features": (), "singular_values": ()}
"""Kinds of plots, and what each needs beside its kind."""


class _Reader:
    """Reads the values of a file; collects what is wrong with them."""

    def __init__(self, path: str) -> None:
        self.path, self.problems = path, list[str]()

    def item(self, values: Any, name: str) -> Item | None:
        self._keys("", values, _ITEM_KEYS, ("title", "seeds", "rows", "columns", "measures"))
        if self.problems:
            return None
        rows, columns = (self._lines(kind, values[kind]) for kind in ("rows", "columns"))
        names = {"rows": {row.name for row in rows}, "columns": {column.name for column in columns}}
        for row in rows:
            self._known(f"rows.{row.name}", (*row.leave_out, *row.for_columns), names["columns"], "column")
        measures = tuple(str(measure) for measure in values["measures"])
        for measure in measures:
            self._measure("measures", measure, names["columns"])
        plot = values.get("plot", {})
        if plot:
            self._plot(plot, names["columns"])
        single = [self._reference(number, entry) for number, entry in enumerate(values.get("references", []))]
        references = [*filter(None, single), *read_paper(values.get("paper", []), self._fault)]
        for reference in references:
            self._known("references", (reference.row,), names["rows"], "row")
            self._known("references", (reference.column,), names["columns"], "column")
            self._known("references", (reference.measure,), set(measures), "measure of the item")
        return Item(
            name=name,
            title=str(values["title"]),
            rows=rows,
            columns=columns,
            measures=measures,
            seeds=self._count("seeds", values["seeds"]),
            overrides=self._overrides("overrides", values.get("overrides", [])),
            source=str(values.get("source", "")),
            about=str(values.get("about", "")),
            plot=plot,
            references=tuple(references),
        )

    def _plot(self, plot: Any, columns: set[str]) -> None:
        kind = str(plot.get("kind")) if isinstance(plot, Mapping) else ""
        if isinstance(plot, Mapping) and kind not in _PLOTS:
            self._fault("plot.kind", f"{kind}: must be {' or '.join(_PLOTS)}.")
            return
        self._keys("plot", plot, known := ("kind", *_PLOTS.get(kind, ())), known)
        for key in [key for key in known[1:] if key in plot]:
            shown = plot[key]
            if key == "measures" and not isinstance(shown, list):
                self._fault("plot.measures", f"{shown}: must be a list of measures.")
            else:
                for measure in shown if key == "measures" else [shown]:
                    self._measure(f"plot.{key}", str(measure), columns)

    def smaller(self, item: Item, small: Mapping[str, Any]) -> Item:
        """Return the item at the small scale."""
        self._keys("small", small, _SMALL_KEYS, ("cut",))
        if self.problems:
            return item
        chosen = {}
        for kind, lines in (("rows", item.rows), ("columns", item.columns)):
            names = [str(name) for name in small.get(kind, [line.name for line in lines])]
            self._known(f"small.{kind}", names, {line.name for line in lines}, kind[:-1])
            chosen[kind] = tuple(line for line in lines if line.name in names)
        seeds = self._count("small.seeds", small.get("seeds", item.seeds))
        kept = {line.name for lines in chosen.values() for line in lines}
        cut = self._overrides("small.overrides", small.get("overrides", []))
        of_rows = {
            str(row): self._overrides(f"small.for_rows.{row}", texts)
            for row, texts in small.get("for_rows", {}).items()
        }
        self._known("small.for_rows", tuple(of_rows), {row.name for row in item.rows}, "row")
        return replace(
            item,
            rows=tuple(
                replace(
                    row,
                    seeds=None if row.seeds is None else min(row.seeds, seeds),
                    for_columns={
                        column.name: {**row.for_columns.get(column.name, {}), **cut, **of_rows.get(row.name, {})}
                        for column in chosen["columns"]
                    },
                )
                for row in chosen["rows"]
            ),
            # What is cut is cut for all: a column's own number of rounds does not win over it.
            columns=tuple(replace(column, overrides={**column.overrides, **cut}) for column in chosen["columns"]),
            seeds=seeds,
            cut=str(small.get("cut", "")),
            # Runs that were cut short are no comparison: the table says so, whatever the file says of whole ones.
            references=tuple(
                replace(entry, reasons=(_SMALL,) if cut or entry.row in of_rows else entry.reasons)
                for entry in item.references
                if {entry.row, entry.column} <= kept
            ),
            measures=tuple(
                name
                for name in item.measures
                if read_measure(name)[1] in (None, *(c.name for c in chosen["columns"]))
            ),
        )

    def _lines(self, kind: str, values: Any) -> tuple[Line, ...]:
        if not isinstance(values, Mapping) or not values:
            self._fault(kind, "must be a mapping of names to what they are, and not empty.")
            return ()
        lines = []
        for name, value in values.items():
            place = f"{kind}.{name}"
            self._keys(place, value, _LINE_KEYS if kind == "rows" else _LINE_KEYS[:3], ("overrides",))
            if not isinstance(value, Mapping):
                continue
            lines.append(
                Line(
                    name=str(name),
                    label=str(value.get("label", name)),
                    overrides=self._overrides(f"{place}.overrides", value.get("overrides", [])),
                    after=self._count(f"{place}.after", value.get("after", 0), 0),
                    seeds=self._count(f"{place}.seeds", value["seeds"]) if "seeds" in value else None,
                    leave_out=tuple(str(column) for column in value.get("leave_out", [])),
                    for_columns={
                        str(column): self._overrides(f"{place}.for_columns.{column}", texts)
                        for column, texts in value.get("for_columns", {}).items()
                    },
                )
            )
        return tuple(lines)

    def _overrides(self, place: str, texts: Any) -> dict[str, str]:
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self._fault(place, "must be a list of key=value texts, as on the command line.")
            return {}
        problems: list[str] = []
        found = as_mapping(texts, problems)
        if "seed" in found:
            problems.append("seed: is not set here; give the number of seeds.")
        for problem in problems:
            self._fault(place, problem)
        return found

    def _reference(self, number: int, entry: Any) -> Reference | None:
        place = f"references.{number}"
        before = len(self.problems)
        self._keys(place, entry, _REFERENCE_KEYS, _REFERENCE_KEYS[:4])
        if len(self.problems) > before:
            return None
        numbers = (entry["value"], entry.get("spread", 0.0))
        if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
            self._fault(place, "value and spread must be numbers.")
            return None
        spread = float(entry["spread"]) if "spread" in entry else None
        names = (str(entry["row"]), str(entry["column"]), str(entry["measure"]))
        return Reference(*names, value=float(entry["value"]), spread=spread)

    def _measure(self, place: str, measure: str, columns: set[str]) -> None:
        try:
            _, column = read_measure(measure)
        except ValueError as error:
            self._fault(place, str(error))
            return
        if column is not None:
            self._known(place, (column,), columns, "column")

    def _count(self, place: str, value: Any, least: int = 1) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self._fault(place, f"{value}: must be an integer from {least}.")
            return least
        return value

    def _keys(self, place: str, values: Any, known: Sequence[str], needed: Sequence[str]) -> None:
        if not isinstance(values, Mapping):
            self._fault(place, "must be a mapping of keys to values.")
            return
        self._known(place, [str(key) for key in values], set(known), "key")
        for key in needed:
            if key not in values:
                self._fault(place, f"{key} is missing.")

    def _known(self, place: str, names: Sequence[str], known: set[str], what: str) -> None:
        for name in names:
            if name not in known:
                self._fault(place, f"{name}: there is no such {what}.{did_you_mean(name, known)}")

    def _fault(self, place: str, text: str) -> None:
        self.problems.append(f"{self.path}: {place}: {text}" if place else f"{self.path}: {text}")
