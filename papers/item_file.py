"""Files of items: what a YAML file describes, its faults, and what it takes from another item's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError, did_you_mean
from florets.papers.items import Item, Line
from florets.papers.measures import read_measure
from florets.papers.references import SMALL, Reason, read_paper
from florets.task.registry import names as names_of


class _UniqueKeys(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"{twice} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return what a file holds.

    Raises
    ------
    OSError, ValueError
        If it cannot be read.
    yaml.YAMLError
        If it is not YAML, or a name stands twice in one mapping.
    """
    # As yaml.safe_load does with its own loader: plain values alone are made.
    loader = _UniqueKeys(path.read_text(encoding="utf-8"))
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def without_others(row: Mapping[str, Any], columns: Any) -> dict[str, Any]:
    """Return a row without what it says of columns that are not there."""
    names = set(map(str, columns or ()))
    left_out = [name for name in row.get("leave_out", []) if str(name) in names]
    own = {name: keys for name, keys in row.get("for_columns", {}).items() if str(name) in names}
    return {**row, "leave_out": left_out, "for_columns": own}


def of_these_lines(values: dict[str, Any], measures: Any) -> dict[str, Any]:
    """Return an item's values without what is said of rows, columns and measures that it does not have."""
    rows, columns = ({str(name) for name in values[kind] or ()} for kind in ("rows", "columns"))
    found = dict(values)
    found["measures"] = [name for name in values["measures"] if read_measure(str(name))[1] in (None, *columns)]
    found["paper"] = [
        block | {"values": figures, "why": _of_places(block.get("why", {}), figures)}
        for block in values.get("paper", [])
        if block["measure"] in measures and (figures := _figures(block["values"], rows, columns))
    ]
    if "small" in values:
        small = found["small"] = dict(values["small"])
        for key, names in (("rows", rows), ("columns", columns)):
            if key in small:
                small[key] = [name for name in small[key] if str(name) in names]
        small["for_rows"] = {row: texts for row, texts in small.get("for_rows", {}).items() if str(row) in rows}
    return found


def _figures(values: Mapping[Any, Any], rows: set[str], columns: set[str]) -> dict[Any, dict[Any, Any]]:
    kept = {
        row: {column: figure for column, figure in of_row.items() if str(column) in columns}
        for row, of_row in values.items()
        if str(row) in rows
    }
    return {row: figures for row, figures in kept.items() if figures}


def _of_places(why: Mapping[Any, Any], figures: Mapping[Any, Mapping[Any, Any]]) -> dict[Any, Any]:
    places = [(row, column) for row, of_row in figures.items() for column in of_row]
    named = {name for row, column in places for name in (row, column, f"{row}.{column}")}
    return {key: reasons for key, reasons in why.items() if key in named}


def as_mapping(overrides: Sequence[str], problems: list[str]) -> dict[str, str]:
    """Return `key=value` texts by key; what cannot be read is appended to `problems`."""
    read_overrides(overrides, problems)
    return {key: value for key, _, value in (text.partition("=") for text in overrides)}


_ITEM_KEYS = (
    "title",
    "extends",
    "source",
    "about",
    "seeds",
    "overrides",
    "rows",
    "columns",
    "measures",
    "plot",
    "paper",
    "why",
    "small",
)
_LINE_KEYS = ("label", "overrides", "after", "seeds", "leave_out", "for_columns")
_SMALL_KEYS = ("cut", "seeds", "overrides", "rows", "columns", "for_rows")
_MOST = 10_000
"""Seeds of an item: each has a line in a file."""
_PLOTS = {"grid": ("measure",), "rows": ("measures",), "curves": ("measure",), "features": (), "singular_values": ()}
"""Kinds of plots, and what each needs beside its kind."""


class ItemReader:
    """Reads the values of a file; collects what is wrong with them in `problems`."""

    def __init__(self, path: str) -> None:
        self.path, self.problems = path, list[str]()

    def item(self, values: Any, name: str) -> Item | None:
        """Return the item at the paper's scale, None if too much is missing to make one."""
        self._keys("", values, _ITEM_KEYS, ("title", "seeds", "rows", "columns", "measures"))
        if self.problems:
            return None
        rows, columns = (self._lines(kind, values[kind]) for kind in ("rows", "columns"))
        names = {"rows": {row.name for row in rows}, "columns": {column.name for column in columns}}
        for row in rows:
            self._known(f"rows.{row.name}.leave_out", row.leave_out, names["columns"], "column")
            self._known(f"rows.{row.name}.for_columns", tuple(row.for_columns), names["columns"], "column")
        measures = tuple(self._names("measures", values["measures"]))
        if not measures:
            self._fault("measures", "must name one at least.")
        for measure in measures:
            self._measure("measures", measure, names["columns"])
        plot = values.get("plot", {})
        if "plot" in values:
            self._plot(plot, names["columns"])
        why = self._mapping("why", values.get("why", {}))
        if "extends" not in values:
            # Reasons that come from another item may be of lines that this one leaves out.
            known = {*names["rows"], *names["columns"]}
            known |= {f"{row}.{column}" for row in names["rows"] for column in names["columns"]}
            self._known("why", list(map(str, why)), known, "row, column or <row>.<column>")
        references = list(read_paper(values.get("paper", []), why, self._fault))
        for reference in references:
            self._known("paper", (reference.row,), names["rows"], "row")
            self._known("paper", (reference.column,), names["columns"], "column")
            self._known("paper", (reference.measure,), set(measures), "measure of the item")
            if reference.data and ":" not in reference.data:
                self._known("paper", (reference.data,), set(names_of("data")), "data")
        return Item(
            name=name,
            title=self._text("title", values["title"]),
            rows=rows,
            columns=columns,
            measures=measures,
            seeds=self._count("seeds", values["seeds"]),
            overrides=self._overrides("overrides", values.get("overrides", [])),
            source=self._text("source", values.get("source", "")),
            about=self._text("about", values.get("about", "")),
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
            for measure in self._names("plot.measures", plot[key]) if key == "measures" else [str(plot[key])]:
                self._measure(f"plot.{key}", measure, columns)

    def smaller(self, item: Item, small: Any) -> Item:
        """Return the item at the small scale."""
        self._keys("small", small, _SMALL_KEYS, ("cut",))
        if self.problems:
            return item
        chosen = {}
        for kind, lines in (("rows", item.rows), ("columns", item.columns)):
            names = self._names(f"small.{kind}", small.get(kind, [line.name for line in lines]))
            self._known(f"small.{kind}", names, {line.name for line in lines}, kind[:-1])
            chosen[kind] = tuple(line for line in lines if line.name in names)
            if not names:
                self._fault(f"small.{kind}", f"none: leaves nothing to run; name some, or leave out {kind}.")
        seeds = self._count("small.seeds", small.get("seeds", item.seeds))
        kept = {line.name for lines in chosen.values() for line in lines}
        cut = self._overrides("small.overrides", small.get("overrides", []))
        of_rows = {
            str(row): self._overrides(f"small.for_rows.{row}", texts)
            for row, texts in self._mapping("small.for_rows", small.get("for_rows", {})).items()
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
            cut=self._text("small.cut", small.get("cut", "")),
            cut_keys=frozenset(cut).union(*of_rows.values()),
            # Runs that were cut short are no comparison: the table says so, whatever the file says of whole ones.
            references=tuple(
                replace(entry, reasons=(Reason(SMALL), *entry.reasons)) if cut or entry.row in of_rows else entry
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
            self._fault(kind, f"{_shown(values)}: must be a mapping of names to what they are, and not empty.")
            return ()
        lines = []
        for name, value in values.items():
            place = f"{kind}.{name}"
            self._keys(place, value, _LINE_KEYS if kind == "rows" else _LINE_KEYS[:3], ("overrides",))
            if not isinstance(value, Mapping):
                continue
            of_columns = self._mapping(f"{place}.for_columns", value.get("for_columns", {}))
            lines.append(
                Line(
                    name=str(name),
                    label=self._text(f"{place}.label", value.get("label", name)),
                    overrides=self._overrides(f"{place}.overrides", value.get("overrides", [])),
                    after=self._count(f"{place}.after", value.get("after", 0), 0),
                    seeds=self._count(f"{place}.seeds", value["seeds"]) if "seeds" in value else None,
                    leave_out=tuple(self._names(f"{place}.leave_out", value.get("leave_out", []))),
                    for_columns={
                        str(column): self._overrides(f"{place}.for_columns.{column}", texts)
                        for column, texts in of_columns.items()
                    },
                )
            )
        return tuple(lines)

    def _overrides(self, place: str, texts: Any) -> dict[str, str]:
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self._fault(place, f"{_shown(texts)}: must be a list of key=value texts, as on the command line.")
            return {}
        problems: list[str] = []
        found = as_mapping(texts, problems)
        if "seed" in found:
            problems.append("seed: is not set here; give the number of seeds.")
        if "results_dir" in found:
            problems.append("results_dir: is not set here; give it on the command line.")
        for problem in problems:
            self._fault(place, problem)
        return found

    def _measure(self, place: str, measure: str, columns: set[str]) -> None:
        try:
            _, column = read_measure(measure)
        except ValueError as error:
            self._fault(place, str(error))
            return
        if column is not None:
            self._known(place, (column,), columns, "column")

    def _count(self, place: str, value: Any, least: int = 1) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
            self._fault(place, f"{_shown(value)}: must be an integer from {least} to {_MOST:,}.")
            return least
        return value

    def _names(self, place: str, values: Any) -> list[str]:
        if not isinstance(values, list):
            self._fault(place, f"{_shown(values)}: must be a list of names.")
            return []
        names = [str(value) for value in values]
        if twice := next((name for name in names if names.count(name) > 1), None):
            self._fault(place, f"{twice}: is given twice; keep one.")
        return names

    def _text(self, place: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._fault(place, f"{_shown(value)}: must be text.")
        return str(value)

    def _mapping(self, place: str, values: Any) -> Mapping[Any, Any]:
        if not isinstance(values, Mapping):
            self._fault(place, f"{_shown(values)}: must be a mapping of names to what holds for them.")
            return {}
        return values

    def _keys(self, place: str, values: Any, known: Sequence[str], needed: Sequence[str]) -> None:
        if not isinstance(values, Mapping):
            self._fault(place, f"{_shown(values)}: must be a mapping of keys to values.")
            return
        self._known(place, [str(key) for key in values], set(known), "key")
        for key in needed:
            if key not in values:
                self._fault(place, f"{key} is missing; docs/reproduce.md has an example.")

    def _known(self, place: str, names: Sequence[str], known: set[str], what: str) -> None:
        for name in names:
            if name not in known:
                among = did_you_mean(name, known) or (f" There are: {', '.join(sorted(known))}." if known else "")
                self._fault(place, f"{name}: there is no such {what}.{among}")

    def _fault(self, place: str, text: str) -> None:
        self.problems.append(f"{self.path}: {place}: {text}" if place else f"{self.path}: {text}")


def _shown(value: Any) -> str:
    """Return a value as a file would have it, where its text alone would be nothing or a word of Python."""
    return "null" if value is None else str(value) or "''"


FOLDER = Path(__file__).parent
SCALES = ("paper", "small")


def item_names() -> list[str]:
    """Return the names of all items, sorted."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def find_item(name: str, scale: str = "paper") -> Item:
    """Return the item of a name at one scale; a name that ends in .yaml is a file of one's own."""
    if scale not in SCALES:
        raise ConfigError([f"scale={scale}: must be {' or '.join(SCALES)}."])
    return read_item(_path_of(name), Path(name).stem if name.endswith(".yaml") else name, scale)


def read_item(path: Path, name: str, scale: str = "paper") -> Item:
    """Return the item that a file describes."""
    values = _with_inherited(path)
    reader = ItemReader(str(path))
    item = reader.item(values, name)
    smaller = reader.smaller(item, values["small"]) if item is not None and "small" in values else None
    if reader.problems or item is None:
        raise ConfigError(list(dict.fromkeys(reader.problems)))
    if scale == "paper":
        return item
    if smaller is None:
        raise ConfigError([f"scale=small: {name} has only one scale; leave it out."])
    return smaller


def _path_of(name: str, folder: Path = Path()) -> Path:
    """Return an item's file; one of one's own is meant from `folder`."""
    if name.endswith(".yaml"):
        return folder / Path(name).expanduser()
    known = item_names()
    if name not in known:
        hint = did_you_mean(name, known) or f" There are: {', '.join(known)}."
        raise ConfigError(
            [f"{name}: there is no such item.{hint} florets reproduce --list lists all; or name a .yaml file."]
        )
    return FOLDER / f"{name}.yaml"


def _read_file(path: Path) -> Any:
    try:
        return read_yaml(path)
    except FileNotFoundError as error:
        raise ConfigError(
            [f"{path}: there is no such file; florets reproduce --list names the items that come with it."]
        ) from error
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        told = error.strerror if isinstance(error, OSError) else None
        reason = " ".join((told or str(error)).split()) or type(error).__name__
        raise ConfigError([f"{path}: cannot be read ({reason})."]) from error


def _with_inherited(path: Path, below: tuple[Path, ...] = ()) -> Any:
    """Return what a file holds, with the keys that it lacks from the item that its `extends` names."""
    values = _read_file(path)
    if not isinstance(values, Mapping) or "extends" not in values:
        return values
    here, name = path.resolve(), str(values["extends"])
    if here in below:
        raise ConfigError([f"{path}: extends: {name}: leads back to this file; name another item."])
    try:
        base = _checked_base(_path_of(name, path.parent), name, (*below, here))
    except ConfigError as error:
        raise ConfigError([f"{path}: extends: {problem}" for problem in error.problems]) from error
    problems: list[str] = []
    chosen = {kind: _chosen_lines(kind, values, base, problems) for kind in ("rows", "columns")}
    if "rows" not in values or isinstance(values["rows"], list):
        chosen["rows"] = {row: without_others(line, chosen["columns"]) for row, line in chosen["rows"].items()}
    own = values.get("why")
    if isinstance(own, Mapping):
        problems += _unknown_reasons(own, base, chosen)
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    merged = of_these_lines(base | chosen, values.get("measures", base["measures"])) | dict(values) | chosen
    if isinstance(own, Mapping):
        merged["why"] = {**base.get("why", {}), **own}
    return merged


def _checked_base(path: Path, name: str, below: tuple[Path, ...]) -> dict[str, Any]:
    """Return what another item's file holds, without a fault."""
    values = _with_inherited(path, below)
    reader = ItemReader(str(path))
    reader.item(values, name)
    if reader.problems:
        raise ConfigError(reader.problems)
    return dict(values)


def _chosen_lines(kind: str, values: Mapping[str, Any], base: Mapping[str, Any], problems: list[str]) -> Any:
    """Return a file's rows or columns: its own, or those that it takes from another item's."""
    lines = {str(line): of_line for line, of_line in base[kind].items()}
    names = values.get(kind, list(lines))
    if not isinstance(names, list):
        return names
    if not names or len(set(map(str, names))) < len(names):
        problems.append(f"{kind}: {names}: must name one at least, and none twice.")
    problems += [
        f"{kind}: {line}: {values['extends']} has no such {kind[:-1]}.{did_you_mean(line, lines)}"
        for line in map(str, names)
        if line not in lines
    ]
    return {line: lines[line] for line in map(str, names) if line in lines}


def _unknown_reasons(why: Mapping[Any, Any], *items: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with reasons of places that none of the items has."""
    rows, columns = ({str(line) for item in items for line in item[kind] or ()} for kind in ("rows", "columns"))
    known = rows | columns | {f"{row}.{column}" for row in rows for column in columns}
    return [
        f"why: {key}: there is no such row, column or <row>.<column>." for key in map(str, why) if key not in known
    ]
