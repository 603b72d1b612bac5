"""Items of `florets reproduce`, found and read from YAML, at one of their scales."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import yaml

from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError, did_you_mean
from florets.papers.item import SETTINGS, Figure, Item, Keys, Line, Names, Published, Reasons, Small
from florets.papers.measures import read_measure
from florets.papers.references import NEVER, SIDES, SMALL, Reason, Reference
from florets.task.keys import type_hints
from florets.task.registry import names as names_of

_LINE_KEYS = ("label", "overrides", "choose")
_NEEDED = ("title", "seeds", "rows", "columns", "measures")
_MOST = 10_000
"""Seeds of an item: each has a line in a file."""
_PLOTS = {
    **{"grid": ("measure",), "rows": ("measures",), "curves": ("measure",), "ranks": ("measure",)},
    **{"features": (), "singular_values": (), "losses": ()},
}
"""Kinds of plots, and what each needs in addition."""
_FIGURE = re.compile(r"(?P<value>-?\d+(?:\.(?P<decimals>\d+))?)(?:\s*±\s*(?P<spread>\d+(?:\.\d+)?))?")
FOLDER = Path(__file__).parent
SCALES = ("paper", "small")


def item_names() -> list[str]:
    """Return the names of all items, sorted."""
    return sorted(_sources())


def find_item(name: str, scale: str = "paper") -> Item:
    """Return the item of a name at one scale; a name that ends in .yaml is a file of one's own."""
    if scale not in SCALES:
        raise ConfigError([f"scale={scale}: must be {' or '.join(SCALES)}."])
    return read_item(_source_of(name), Path(name).stem if name.endswith(".yaml") else name, scale)


def read_item(source: "Path | Source", name: str, scale: str = "paper") -> Item:
    """Return the item that a file of one item describes, or a part of a paper's file."""
    item = _read_file(Source(source) if isinstance(source, Path) else source, name)
    if scale == "paper":
        return item
    if item.small is None:
        raise ConfigError([f"scale=small: {name} has only one scale; leave it out."])
    return _smaller(item, item.small)


def as_mapping(overrides: Sequence[str], problems: list[str]) -> dict[str, str]:
    """Return `key=value` texts by key; what cannot be read is appended to `problems`."""
    read_overrides(overrides, problems)
    return {key: value for key, _, value in (text.partition("=") for text in overrides)}


def _smaller(item: Item, small: Small) -> Item:
    """Return an item at its small scale."""
    chosen = item.narrowed(small.rows, small.columns)
    seeds, cut = small.seeds or item.seeds, small.overrides

    def of_columns(row: Line) -> dict[str, Keys]:
        own = small.for_rows.get(row.name, {})
        return {c.name: {**row.for_columns.get(c.name, {}), **cut, **own} for c in chosen.columns}

    return replace(
        chosen,
        rows=tuple(
            replace(row, seeds=row.seeds and min(row.seeds, seeds), for_columns=of_columns(row))
            for row in chosen.rows
        ),
        # What is cut is cut for all: a column's own number of rounds does not win over it.
        columns=tuple(replace(column, overrides={**column.overrides, **cut}) for column in chosen.columns),
        seeds=seeds,
        cut=small.cut,
        cut_keys=frozenset(cut).union(*(small.for_rows.get(row.name, ()) for row in chosen.rows)),
        # Runs that were cut short are no comparison: the table says so, whatever the file says of whole ones.
        references=tuple(
            replace(entry, reasons=(Reason(SMALL), *entry.reasons)) if cut or entry.row in small.for_rows else entry
            for entry in chosen.references
        ),
    )


class Source(NamedTuple):
    """Where an item is described: a file, and which of its parts, counted from 0; None: the whole file."""

    path: Path
    part: int | None = None


_HEADING = re.compile(r"# florets reproduce (\S+)")


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


def _source_of(name: str, folder: Path = Path()) -> Source:
    """Return where an item is described; a file of one's own is meant from `folder`."""
    if name.endswith(".yaml"):
        return Source(folder / Path(name).expanduser())
    known = _sources()
    if name not in known:
        hint = did_you_mean(name, known) or f" There are: {', '.join(sorted(known))}."
        raise ConfigError(
            [f"{name}: there is no such item.{hint} florets reproduce --list lists all; or name a .yaml file."]
        )
    return known[name]


class _UniqueKeysLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


def _load(source: Source) -> Any:
    path, part = source
    try:
        text = path.read_text(encoding="utf-8") if part is None else _parts(path)[part]
        # As yaml.safe_load does: plain values alone are made.
        return yaml.load(text, _UniqueKeysLoader)
    except FileNotFoundError:
        raise ConfigError(
            [f"{path}: there is no such file; florets reproduce --list names the items that come with it."]
        ) from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        words = error.strerror if isinstance(error, OSError) else None
        reason = " ".join((words or str(error)).split()) or type(error).__name__
        raise ConfigError([f"{path}: cannot be read ({reason})."]) from None


def _read_file(source: Source, name: str, below: tuple[Source, ...] = ()) -> Item:
    """Return the item at the paper's scale, with what it lacks from the item that its `extends` names."""
    values, path = _load(source), source.path
    base = None
    if isinstance(values, Mapping) and "extends" in values:
        here, other = Source(path.resolve(), source.part), str(values["extends"])
        if here in below:
            raise ConfigError([f"{path}: extends: {other}: is circular; name another item."])
        try:
            base = _read_file(_source_of(other, path.parent), other, (*below, here))
        except ConfigError as error:
            raise ConfigError([f"{path}: extends: {problem}" for problem in error.problems]) from None
    reader = _Reader(base)
    item = reader.item(values, name)
    if reader.problems or item is None:
        raise ConfigError([f"{path}: {problem}" for problem in dict.fromkeys(reader.problems)])
    return item


class _Reader:
    """Reads the values of a file by the types of the fields; collects what is wrong with them in `problems`."""

    def __init__(self, base: Item | None) -> None:
        self.base, self.problems = base, list[str]()

    def item(self, values: Any, name: str) -> Item | None:
        """Return the item, None if too much is missing to make one."""
        given = self._fields(Item, values, "", () if self.base else _NEEDED)
        if self.base is not None and given is not None:
            kept = [[line.name for line in given[kind]] if kind in given else None for kind in ("rows", "columns")]
            if self.problems:
                return None
            base = self.base.narrowed(*kept)
            item = replace(base, **{**given, "name": name, "why": {**base.why, **given.get("why", {})}})
        elif given is not None and set(_NEEDED) <= set(given):
            item = Item(name, **given)
        else:
            return None
        self._check(item, given)
        if item.settings == "default":
            item = replace(item, columns=tuple(replace(column, choose={}) for column in item.columns))
        return replace(item, references=_references(item))

    def _check(self, item: Item, given: Mapping[str, Any]) -> None:
        """Check what a file says of rows, columns and measures; what comes from another item was checked there."""
        lines = {kind: {line.name for line in getattr(item, kind)} for kind in ("rows", "columns")}
        places = {f"{row}.{column}" for row in lines["rows"] for column in lines["columns"]}
        for kind, names in (*lines.items(), ("measures", item.measures)):
            if not names:
                self._fault(kind, "must name one at least.")
        for row in item.rows if isinstance(given.get("rows"), tuple) else ():
            # Rows of another item may leave out columns that this one does not have.
            others = {column.name for column in self.base.columns} if self.base else set()
            self._known(f"rows.{row.name}.leave_out", row.leave_out, lines["columns"] | others, "column")
            self._known(f"rows.{row.name}.for_columns", row.for_columns, lines["columns"], "column")
        for measure in item.measures:
            self._measure("measures", measure, lines["columns"])
        self._known("settings", (item.settings,), SETTINGS, "kind of settings")
        if "plot" in given:
            self._plot(item.plot, lines["columns"])
        of_base = [line.name for line in (*self.base.rows, *self.base.columns)] if self.base else []
        pairs = [f"{r.name}.{c.name}" for r in self.base.rows for c in self.base.columns] if self.base else []
        known = {*lines["rows"], *lines["columns"], *places, *of_base, *pairs}
        for key in set(given.get("why", ())) - known:
            self._fault("why", f"{key}: there is no such row, column or <row>.<column>.")
        seen: set[tuple[str, str, str, str]] = set()
        for number, block in enumerate(item.paper if "paper" in given else ()):
            self._known("paper", block.values, lines["rows"], "row")
            self._known("paper", (block.measure,), item.measures, "measure of the item")
            if block.data and ":" not in block.data:
                self._known("paper", (block.data,), names_of("data"), "data")
            used = set(block.values)
            for of, column in ((name, column) for name, of_row in block.values.items() for column in of_row):
                self._known("paper", (column,), lines["columns"], "column")
                if (key := (of, column, block.measure, block.data)) in seen:
                    at = f"paper.{number}.values.{of}.{column}"
                    self._fault(at, "this measure has a value there already; keep one of the two.")
                seen.add(key)
                used |= {column, f"{of}.{column}"}
            for reason in set(block.why) - used:
                self._fault(
                    f"paper.{number}.why.{reason}", "there is no such value; use a column, a row or <row>.<column>."
                )
        if "small" in given and item.small is not None:
            for kind, chosen in (("rows", item.small.rows), ("columns", item.small.columns)):
                self._known(f"small.{kind}", chosen or (), lines[kind], kind[:-1])
                if chosen == ():
                    self._fault(f"small.{kind}", f"none: leaves nothing to run; name some, or leave out {kind}.")
            self._known("small.for_rows", item.small.for_rows, lines["rows"], "row")

    def _plot(self, plot: Mapping[str, Any], columns: Collection[str]) -> None:
        kind = str(plot.get("kind"))
        if kind not in _PLOTS:
            self._fault("plot.kind", f"{kind}: must be {' or '.join(_PLOTS)}.")
            return
        self._known("plot", plot, ("kind", *_PLOTS[kind]), "key")
        for key in _PLOTS[kind]:
            if key not in plot:
                self._fault("plot", f"{key} is missing.")
            for measure in (
                self._names("plot.measures", plot.get(key)) if key == "measures" else (str(plot.get(key)),)
            ):
                self._measure(f"plot.{key}", measure, columns)

    def _measure(self, place: str, measure: str, columns: Collection[str]) -> None:
        try:
            _, column = read_measure(measure)
        except ValueError as error:
            self._fault(place, str(error))
            return
        if column is not None:
            self._known(place, (column,), columns, "column")

    def _fields(
        self, kind: Any, values: Any, place: str, needed: Sequence[str], known: Sequence[str] = ()
    ) -> dict[str, Any] | None:
        """Return the fields of a dataclass that a mapping gives; None where it is none."""
        if not isinstance(values, Mapping):
            self._fault(place, f"{_shown(values)}: must be a mapping of keys to values.")
            return None
        declared = {f.name: f for f in dataclasses.fields(kind) if f.metadata.get("file", True)}
        self._known(place, map(str, values), known or declared, "key")
        for key in needed:
            if key not in values:
                self._fault(place, f"{key} is missing; docs/reproduce.md has an example.")
        hints = type_hints(kind)
        return {
            key: self._value(hints[key], value, f"{place}.{key}".lstrip("."))
            for key, value in values.items()
            if key in declared
        }

    def _value(self, kind: Any, value: Any, place: str) -> Any:
        """Return a value as the type of a field; the first of several types is that of what stands in a file."""
        if type(None) in get_args(kind):
            kind = get_args(kind)[0]
        readers: dict[Any, Callable[[str, Any], Any]] = {
            int: self._count,
            str: self._text,
            Figure: self._figure,
            Small: self._small,
            Keys: self._overrides,
            Names: self._names,
            Reasons: self._reasons,
            tuple[Line, ...]: self._lines,
            tuple[Published, ...]: self._published,
        }
        if kind in readers:
            return readers[kind](place, value)
        assert get_origin(kind) is Mapping
        if not isinstance(value, Mapping):
            self._fault(place, f"{_shown(value)}: must be a mapping of names to what holds for them.")
            return {}
        of_each = get_args(kind)[1]
        if of_each is Any:
            return value
        return {str(name): self._value(of_each, one, f"{place}.{name}") for name, one in value.items()}

    def _small(self, place: str, value: Any) -> Small | None:
        given = self._fields(Small, value, place, ("cut",))
        return Small(**given) if given and "cut" in given else None

    def _lines(self, kind: str, values: Any) -> tuple[Line, ...]:
        if isinstance(values, list) and self.base is not None:
            lines = {line.name: line for line in getattr(self.base, kind)}
            names = self._names(kind, values)
            self._known(kind, names, lines, f"{kind[:-1]} in {self.base.name}")
            return tuple(lines[name] for name in names if name in lines)
        if not isinstance(values, Mapping) or not values:
            self._fault(kind, f"{_shown(values)}: must be a mapping of names to what they are, and not empty.")
            return ()
        found = []
        for name, value in values.items():
            given = self._fields(Line, value, f"{kind}.{name}", ("overrides",), () if kind == "rows" else _LINE_KEYS)
            if given is not None:
                found.append(Line(**{"name": str(name), "label": str(name), "overrides": {}, **given}))
        return tuple(found)

    def _published(self, place: str, blocks: Any) -> tuple[Published, ...]:
        if not isinstance(blocks, list):
            self._fault(place, "must be a list of blocks with the keys source, measure and values.")
            return ()
        needed = ("source", "measure", "values")
        given = [self._fields(Published, block, f"{place}.{number}", needed) for number, block in enumerate(blocks)]
        return tuple(Published(**one) for one in given if one is not None and set(needed) <= set(one))

    def _figure(self, place: str, value: Any) -> Figure:
        if value == NEVER:
            return Figure(None)
        text = " ".join(str(value).split())
        match = None if isinstance(value, bool) else _FIGURE.fullmatch(text)
        if match is None:
            self._fault(place, f"{value}: must be a number, 'mean ± spread' or {NEVER}.")
            return Figure(None)
        if not isinstance(value, str):
            # YAML has dropped the last zeros of what is no text: how it was rounded is not known.
            return Figure(float(match["value"]))
        spread = None if match["spread"] is None else float(match["spread"])
        return Figure(float(match["value"]), spread, 0.5 * 10.0 ** -len(match["decimals"] or ""), text)

    def _reasons(self, place: str, value: Any) -> Reasons:
        entries = value if isinstance(value, list) else [value]
        pairs = [
            next(iter(entry.items())) if isinstance(entry, Mapping) and len(entry) == 1 else ("", entry)
            for entry in entries
        ]
        if not all(isinstance(text, str) and side in ("", *SIDES) for side, text in pairs):
            self._fault(
                place,
                f"{value}: must be text or a list of texts; of one that holds on one side of the published value "
                "alone, {above: text} or {below: text}.",
            )
            return ()
        return tuple(Reason(text, side) for side, text in pairs)

    def _overrides(self, place: str, texts: Any) -> dict[str, str]:
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self._fault(place, f"{_shown(texts)}: must be a list of key=value texts, as on the command line.")
            return {}
        problems: list[str] = []
        found = as_mapping(texts, problems)
        if "seed" in found:
            problems.append("seed: is not set here; give the number of seeds.")
        if "results_dir" in found:
            problems.append("results_dir: is not set here; give it on the command line.")
        self.problems += [f"{place}: {problem}" for problem in problems]
        return found

    def _count(self, place: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
            self._fault(place, f"{_shown(value)}: must be an integer from 1 to {_MOST:,}.")
            return 1
        return value

    def _names(self, place: str, values: Any) -> Names:
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list):
            self._fault(place, f"{_shown(values)}: must be a list of names.")
            return ()
        names = tuple(map(str, values))
        if twice := next((name for name in names if names.count(name) > 1), None):
            self._fault(place, f"{twice}: is given twice; keep one.")
        return names

    def _text(self, place: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._fault(place, f"{_shown(value)}: must be text.")
        return str(value)

    def _known(self, place: str, names: Iterable[str], known: Iterable[str], what: str) -> None:
        known = set(known)
        for name in names:
            if name not in known:
                among = did_you_mean(name, known) or (f" There are: {', '.join(sorted(known))}." if known else "")
                self._fault(place, f"{name}: there is no such {what}.{among}")

    def _fault(self, place: str, text: str) -> None:
        self.problems.append(f"{place}: {text}" if place else text)


def _shown(value: Any) -> str:
    """Return a value as a file would have it, where its text alone would be nothing or a word of Python."""
    return "null" if value is None else str(value) or "''"


def _references(item: Item) -> tuple[Reference, ...]:
    """Return the published values with the reasons of their places: their own, else their column's and row's.

    What an extended item says of rows, columns and measures that this one lacks is left out.
    """
    found = []
    for block in item.paper:
        why = {**item.why, **block.why}
        for row, column, figure in ((r, c, f) for r, of_row in block.values.items() for c, f in of_row.items()):
            reasons = why.get(f"{row}.{column}", (*why.get(column, ()), *why.get(row, ())))
            names = (row, column, block.measure)
            found.append(Reference(*names, **figure._asdict(), source=block.source, reasons=reasons, data=block.data))
    places = {(row.name, column.name) for row in item.rows for column in item.columns}
    return tuple(r for r in found if r.measure in item.measures and (r.row, r.column) in places)
