"""Reader of an item's values, as its file has them: what they make, and every fault by its place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from florets.conf.overrides import read_overrides
from florets.conf.problems import did_you_mean
from florets.papers.items import Item, Line
from florets.papers.measures import read_measure
from florets.papers.reasons import SMALL, Reason
from florets.papers.references import read_paper
from florets.task.registry import names as names_of


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
            self._fault(place, f"{twice}: stands twice; keep one.")
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
                self._fault(place, f"{key} is missing; docs/reproduce.md has a file to begin with.")

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
