"""An item of `florets reproduce`: a table or figure as rows (data) and columns (methods) of runs, read from YAML."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import yaml

from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError, did_you_mean
from florets.papers.measures import read_measure
from florets.papers.references import Reference
from florets.task.keys import type_hints

Names = tuple[str, ...]
Keys = dict[str, str]
"""Overrides of runs by key; a file has them as a list of key=value texts."""

FOLDER = Path(__file__).parent
SCALES = ("paper", "small")
SETTINGS = ("chosen", "default")
PLOTS = ("", "rows", "curves", "features", "singular_values", "losses")


@dataclass(frozen=True)
class Line:
    """A row (data) or a column (method) of a table; `name` means it in the file, and on the command line.

    Of a row: seeds where they are not the item's, columns that say nothing there, keys of single columns' runs, the
    folder of its data below `data_dir`, and the kind of data, within which columns are compared. Of a column: values
    of keys among which validation data `choose`, in each row.
    """

    overrides: Keys
    name: str = ""
    label: str = ""
    seeds: int | None = None
    leave_out: Names = ()
    for_columns: Mapping[str, Keys] = field(default_factory=dict)
    choose: Mapping[str, Names] = field(default_factory=dict)
    folder: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Published:
    """Values of one source and one measure, by row and column; see `Reference`."""

    source: str
    measure: str
    values: Mapping[str, Mapping[str, str]]
    data: str = ""
    why: Mapping[str, Names] = field(default_factory=dict)


@dataclass(frozen=True)
class Small:
    """What the small scale cuts; without rows and columns it has all."""

    cut: str
    seeds: int | None = None
    overrides: Keys = field(default_factory=dict)
    rows: Names | None = None
    columns: Names | None = None
    for_rows: Mapping[str, Keys] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One table or figure, called ``<paper>/<item>`` or as a file of one's own; docs/reproduce.md describes the file.

    `why`: reasons for what is off, by row, column or ``<row>.<column>``; those of a block of `paper` win over them.
    """

    title: str
    rows: Mapping[str, Line]
    columns: Mapping[str, Line]
    measures: Names
    seeds: int
    name: str = ""
    overrides: Keys = field(default_factory=dict)
    source: str = ""
    about: str = ""
    plot: str = ""
    settings: str = SETTINGS[0]
    paper: tuple[Published, ...] = ()
    why: Mapping[str, Names] = field(default_factory=dict)
    small: Small | None = None
    references: tuple[Reference, ...] = ()
    cut: str = ""

    def narrowed(
        self, rows: Collection[str] | None, columns: Collection[str] | None, measures: Sequence[str] | None = None
    ) -> "Item":
        """Return the item with these rows, columns and measures alone, and what is published of them; None: all."""
        own_rows = {name: row for name, row in self.rows.items() if rows is None or name in rows}
        own_columns = {name: column for name, column in self.columns.items() if columns is None or name in columns}
        # A difference needs both of its columns.
        kept = tuple(m for m in measures or self.measures if (read_measure(m)[1] or m) in (m, *own_columns))
        references = tuple(
            r for r in self.references if r.row in own_rows and r.column in own_columns and r.measure in kept
        )
        return replace(self, rows=own_rows, columns=own_columns, measures=kept, references=references)

    def at_small_scale(self) -> "Item":
        """Return the item at its small scale; runs that were cut short are not compared with published values."""
        if (small := self.small) is None:
            raise ConfigError([f"scale=small: {self.name} has only one scale; leave it out."])
        chosen = self.narrowed(small.rows, small.columns)
        seeds = small.seeds or self.seeds

        def cut_short(row: Line) -> Line:
            own = small.for_rows.get(row.name, {})
            keys = {name: {**row.for_columns.get(name, {}), **small.overrides, **own} for name in chosen.columns}
            return replace(row, seeds=row.seeds and min(row.seeds, seeds), for_columns=keys)

        return replace(
            chosen,
            rows={name: cut_short(row) for name, row in chosen.rows.items()},
            # What is cut is cut for all: a column's own number of rounds does not win over it.
            columns={
                name: replace(column, overrides={**column.overrides, **small.overrides})
                for name, column in chosen.columns.items()
            },
            seeds=seeds,
            cut=small.cut,
            references=tuple(
                replace(r, is_comparable=not small.overrides and r.row not in small.for_rows)
                for r in chosen.references
            ),
        )


# Finding an item


class Source(NamedTuple):
    """Where an item is described: a file, and which of its parts, counted from 0; None: the whole file."""

    path: Path
    part: int | None = None


_HEADING = re.compile(r"# florets reproduce (\S+)")


def item_names() -> list[str]:
    """Return the names of all items, sorted."""
    return sorted(_sources())


def find_item(name: str, scale: str = "paper") -> Item:
    """Return the item of a name at one scale; a name that ends in .yaml is a file of one's own."""
    if scale not in SCALES:
        raise ConfigError([f"scale={scale}: must be {' or '.join(SCALES)}."])
    source = _source_of(name, Path())
    try:
        item = _item(*_values(source, ()), name=Path(name).stem if name.endswith(".yaml") else name)
    except ConfigError as error:
        raise ConfigError([f"{source.path}: {problem}" for problem in error.problems]) from None
    return item if scale == "paper" else item.at_small_scale()


def _sources() -> dict[str, Source]:
    """Return where each item is described: each part of a paper's file begins with the command that makes it."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for number, text in enumerate(_parts(path)):
            if heading := _HEADING.match(text):
                found[heading[1]] = Source(path, number)
    return found


def _parts(path: Path) -> list[str]:
    return re.split(r"^---\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _source_of(name: str, folder: Path) -> Source:
    if name.endswith(".yaml"):
        return Source(folder / Path(name).expanduser())
    known = _sources()
    if name not in known:
        hint = did_you_mean(name, known) or f" There are: {', '.join(sorted(known))}."
        raise ConfigError(
            [f"{name}: there is no such item.{hint} florets reproduce --list lists all; or name a .yaml file."]
        )
    return known[name]


# Reading it


class _Loader(yaml.BaseLoader):
    """Reads every value as text: published figures keep their last zeros. Refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


def _values(source: Source, below: tuple[Source, ...]) -> tuple[dict[str, Any], bool]:
    """Return the values of a file, with what it lacks of the item that it extends, and whether it extends none."""
    path, part = source
    try:
        values = yaml.load(path.read_text(encoding="utf-8") if part is None else _parts(path)[part], _Loader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        words = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise ConfigError([f"cannot be read ({words or type(error).__name__})."]) from None
    if not isinstance(values, dict):
        raise ConfigError(["must be a mapping of keys to values."])
    if (name := values.pop("extends", None)) is None:
        return values, True
    if source in below:
        raise ConfigError([f"extends: {name}: is circular; name another item."])
    base, _ = _values(_source_of(name, path.parent), (*below, source))
    for kind in ("rows", "columns"):
        if isinstance(names := values.get(kind), list):
            hold_to(kind, names, base[kind], f"{kind[:-1]} in {name}")
            values[kind] = {one: base[kind][one] for one in names}
    found = {**base, **values, "why": {**base.get("why", {}), **values.get("why", {})}}
    if "measures" not in values:
        found["measures"] = [m for m in base["measures"] if (read_measure(m)[1] or m) in (m, *found["columns"])]
    return found, False


def _item(values: dict[str, Any], is_whole: bool, name: str) -> Item:
    item: Item = _read(Item, values, "")
    item = replace(item, name=name, rows=_named(item.rows), columns=_named(item.columns))
    for kind in ("rows", "columns", "measures"):
        if not getattr(item, kind):
            raise ConfigError([f"{kind}: must name one at least."])
    for measure in item.measures:
        try:
            _, column = read_measure(measure)
        except ValueError as error:
            raise ConfigError([f"measures: {error}"]) from None
        hold_to("measures", [column] if column else [], item.columns, "column")
    hold_to("plot", [item.plot], PLOTS, "kind of plot")
    hold_to("settings", [item.settings], SETTINGS, "kind of settings")
    # What an extended item says of rows, columns and measures that this one lacks is left out.
    for row in item.rows.values() if is_whole else ():
        hold_to(f"rows.{row.name}", [*row.leave_out, *row.for_columns], item.columns, "column")
    for block in item.paper if is_whole else ():
        hold_to("paper", [block.measure], item.measures, "measure of the item")
        hold_to("paper", list(block.values), item.rows, "row")
        hold_to("paper", [column for of_row in block.values.values() for column in of_row], item.columns, "column")
    if item.settings == "default":
        item = replace(item, columns={name: replace(one, choose={}) for name, one in item.columns.items()})
    found: dict[tuple[str, str, str, str], Reference] = {}
    for reference in _references(item):
        key = (reference.row, reference.column, reference.measure, reference.data)
        if key in found:
            raise ConfigError([f"paper: {' '.join(key).strip()}: has a value there already; keep one of the two."])
        found[key] = reference
    return replace(item, references=tuple(found.values())).narrowed(None, None)


def _named(lines: Mapping[str, Line]) -> dict[str, Line]:
    return {name: replace(line, name=name, label=line.label or name) for name, line in lines.items()}


def _references(item: Item) -> Iterator[Reference]:
    """Yield the published values with the reasons of their places: their own, else their column's and row's."""
    for block in item.paper:
        why = {**item.why, **block.why}
        for row, column, printed in ((r, c, text) for r, of in block.values.items() for c, text in of.items()):
            reasons = why.get(f"{row}.{column}", (*why.get(column, ()), *why.get(row, ())))
            names = (row, column, block.measure)
            try:
                yield Reference(*names, " ".join(printed.split()), block.source, reasons, block.data)
            except ValueError as error:
                raise ConfigError([f"paper: {row}.{column}: {error}"]) from None


def hold_to(place: str, names: Sequence[str], known: Collection[str], what: str) -> None:
    """Raise ConfigError at the first of some names that is not among the known ones; `what` says what they are of."""
    for name in names:
        if name not in known:
            among = did_you_mean(name, known) or f" There are: {', '.join(sorted(known))}."
            raise ConfigError([f"{place}: {name}: there is no such {what}.{among}"])


def _read(kind: Any, value: Any, place: str) -> Any:
    """Return a value of a file, in which all are texts, lists and mappings, as a field's type."""
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if kind == Keys:
        return _keys(value, place)
    if is_dataclass(kind):
        return _fields(kind, value, place)
    if get_origin(kind) is Mapping:
        _expect(isinstance(value, dict), value, place, "a mapping of names to what holds for them")
        return {name: _read(get_args(kind)[1], one, f"{place}.{name}") for name, one in value.items()}
    if get_origin(kind) is tuple:
        values = [value] if isinstance(value, str) else value
        _expect(isinstance(values, list), value, place, "a list")
        return tuple(_read(get_args(kind)[0], one, f"{place}.{number}") for number, one in enumerate(values))
    _expect(isinstance(value, str), value, place, "text")
    if kind is int:
        _expect(value.isdecimal() and 0 < int(value) <= 10_000, value, place, "an integer from 1 to 10,000")
        return int(value)
    return value


def _fields(kind: Any, values: Any, place: str) -> Any:
    _expect(isinstance(values, dict), values, place or "the file", "a mapping of keys to values")
    declared, hints = {one.name: one for one in fields(kind)}, type_hints(kind)
    hold_to(place or "the file", list(values), declared, "key")
    for name, one in declared.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise ConfigError([f"{place}.{name} is missing; docs/reproduce.md has an example.".lstrip(".")])
    return kind(**{name: _read(hints[name], one, f"{place}.{name}".lstrip(".")) for name, one in values.items()})


def _keys(texts: Any, place: str) -> dict[str, str]:
    _expect(isinstance(texts, list), texts, place, "a list of key=value texts, as on the command line")
    problems: list[str] = []
    found = as_mapping(texts, problems)
    problems += [
        f"{key}: is not set here; give it on the command line." for key in ("seed", "results_dir") if key in found
    ]
    if problems:
        raise ConfigError([f"{place}: {problem}" for problem in problems])
    return found


def _expect(holds: bool, value: Any, place: str, what: str) -> None:
    if not holds:
        raise ConfigError([f"{place}: {value}: must be {what}."])


def as_mapping(overrides: Sequence[str], problems: list[str]) -> dict[str, str]:
    """Return `key=value` texts by key; what cannot be read is appended to `problems`."""
    read_overrides(overrides, problems)
    return {key: value for key, _, value in (text.partition("=") for text in overrides)}
