"""The table of an item: a matrix of rows and columns for each measure, as Markdown and CSV."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from florets.papers.cells import Cell, Place, Progress, in_order
from florets.papers.compared import Comparison
from florets.papers.item import Item, Line
from florets.papers.measures import Measure, read_measure
from florets.papers.ranks import Ranking, ranked
from florets.papers.references import NEVER, NO_VALUE, OFF, UNDECIDED, WIDE, Reference, Verdict
from florets.reports import tables
from florets.reports.console import counted
from florets.reports.folder import write_whole
from florets.reports.statistics import Spread, holm, p_text, paired, paired_p
from florets.reports.tables import ResultTable, markdown_table, write_csv

Found = MutableMapping[int, Progress]
"""Progress of one place's cells, by seed."""

LEFT_OUT, MEANINGLESS, NOT_RUN = "--", "·", "not run"


@dataclass(frozen=True)
class Entry:
    """What one matrix has in one place.

    Attributes
    ----------
    spread
        Of the values that the finished cells have; for counts of successes (1.0 and 0.0) its mean is their fraction.
    p, p_holm
        Of a paired difference: that of the paired t test, plain and by Holm's correction over all differences of the
        matrix; None where there is no test.
    open
        What is said where no cell is finished: not run, stopped or failed.
    """

    measure: Measure
    is_difference: bool
    finished: int
    seeds: int
    spread: Spread
    p: float | None = None
    p_holm: float | None = None
    open: str = ""
    reference: Reference | None = None

    @property
    def text(self) -> str:
        """What the table shows, without the published value."""
        if not self.finished:
            return self.open
        number = self.spread.number
        if not number:
            # Finished, but none has a value: an ARI of 0.9 was never reached, or the loss is not finite.
            shown = NEVER if self.measure.may_be_never and not self.is_difference else NO_VALUE
        elif self.measure.kind == "count":
            shown = f"{round(self.spread.mean * number)} of {number}"
        elif self.is_difference:
            shown, low, high = (
                self.measure.number(figure, "+") for figure in (self.spread.mean, self.spread.low, self.spread.high)
            )
            if number > 1:
                shown += f" [{low}, {high}]"
            if self.p_holm is not None:
                shown += f", {p_text(self.p_holm)}"
        else:
            shown = self.measure.number(self.spread.mean)
            if number > 1:
                shown += f" ± {self.measure.deviation(self.spread.mean, self.spread.deviation)}"
        if self.measure.kind == "mean" and 0 < number < self.finished:
            shown += f" ({number} of {self.finished})"
        return f"{shown} {self._unfinished}".strip()

    @property
    def published(self) -> str:
        """The published value with its spread; empty where there is none."""
        return "" if self.reference is None else self.reference.text(self.measure)

    @property
    def difference(self) -> float | None:
        """Our mean less the published value, None where one of them is missing."""
        if self.reference is None or self.reference.value is None or not self.spread.number:
            return None
        return self.spread.mean - self.reference.value

    @property
    def verdict(self) -> Verdict | None:
        """How ours compares with the published value, None where there is none."""
        if self.reference is None:
            return None
        if not self.finished:
            return Verdict(self.open)
        number = self.spread.number
        verdict = self.reference.verdict(self.spread, self.measure)
        reached = f"({number} of {self.finished} seeds)" if 0 < number < self.finished else ""
        return replace(verdict, reached=reached, finished=self._unfinished)

    @property
    def columns(self) -> dict[str, object]:
        """The entry as a line of ``table.csv``; what is not known is missing."""
        spread, paper = self.spread, self.reference
        found: dict[str, object] = {"seeds": self.seeds, "finished": self.finished, "values": spread.number}
        if self.measure.kind == "count":
            found["successes"] = round(spread.mean * spread.number) if spread.number else None
        else:
            found |= {"mean": spread.mean, "std": spread.deviation, "low": spread.low, "high": spread.high}
        found |= {"p": self.p, "p_holm": self.p_holm, "difference": self.difference}
        if paper is not None:
            found["published"] = NEVER if paper.value is None else paper.value
            found |= {"published_std": paper.spread, "source": paper.source}
        return found | {"verdict": self.verdict and self.verdict.text}

    @property
    def _unfinished(self) -> str:
        """Mark of a place of which not all seeds are finished."""
        return f"[{self.finished}/{self.seeds}]" if self.finished < self.seeds else ""


@dataclass(frozen=True)
class Matrix:
    """All entries of one measure, by names of row and column; rows where it means nothing are not in it."""

    name: str
    label: str
    entries: Mapping[tuple[str, str], Entry]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """An item with what its cells have given so far."""

    item: Item
    places: Sequence[Place]
    found: Mapping[tuple[str, str], Found]

    def progress(self, cell: Cell) -> Progress:
        """Return how far a cell is."""
        return self.found[cell.place.key][cell.seed]

    def finished(self, place: Place) -> list[int]:
        """Return the seeds whose cells at a place are finished."""
        found = self.found.get(place.key, {})
        return sorted(seed for seed, progress in found.items() if progress.state == "finished")

    @property
    def states(self) -> Counter[str]:
        """Number of cells in each state; refused ones are those of places whose settings are."""
        states = Counter[str](progress.state for found in self.found.values() for progress in found.values())
        states["refused"] = sum(place.seeds for place in self.places if place.config is None)
        return states

    def narrowed(self, chosen: Mapping[str, Sequence[str]], seeds: int | None = None) -> "Table":
        """Return what was asked for of the table, and what is published of that.

        `chosen`: names of ``rows``, ``columns`` and ``measures``; of a kind that is not there, all.
        """
        item = self.item.narrowed(chosen.get("rows"), chosen.get("columns"), chosen.get("measures"))
        places = {(row.name, column.name) for row in item.rows for column in item.columns}
        found = {
            key: {seed: progress for seed, progress in cells.items() if seeds is None or seed < seeds}
            for key, cells in self.found.items()
            if key in places
        }
        return Table(item, [place for place in self.places if place.key in places], found)

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield all that is known of each cell, as a line of ``cells.csv``."""
        for place in self.places:
            for seed, progress in self.found.get(place.key, {}).items():
                known = (*place.key, seed, progress.state, progress.note)
                folder = place.folder / f"seed-{seed}"
                yield dict(zip(_CELL, known, strict=True)) | progress.values | {"folder": folder}

    def matrices(self) -> Iterator[Matrix]:
        """Yield one matrix for each measure of the item, in its order."""
        for name in self.item.measures:
            yield self.matrix(name)

    def matrix(self, name: str) -> Matrix:
        """Return the matrix of a measure, or of a paired difference between columns."""
        measure, other = read_measure(name)
        entries = {}
        for place in self.places:
            # Without its partner a difference says nothing.
            is_there = other is None or (place.row.name, other) in self.found
            if place.column.name != other and place.config is not None and measure.fits(place.config) and is_there:
                entries[place.key] = self._entry(name, measure, place, other)
        for place in self.places if entries else ():
            if place.config is None and place.column.name != other:
                refused = Entry(measure, other is not None, 0, place.seeds, Spread.of([]), open="refused")
                entries[place.key] = replace(refused, reference=self._published(name, place))
        adjusted = holm([entry.p for entry in entries.values()])
        entries = {key: replace(entry, p_holm=p) for (key, entry), p in zip(entries.items(), adjusted, strict=True)}
        rows = tuple(row.name for row in self.item.rows if any(key[0] == row.name for key in entries))
        labels = {column.name: column.label for column in self.item.columns}
        label = measure.label if other is None else f"{measure.label}, less that of {labels[other]} (equal seeds)"
        return Matrix(name, label[:1].upper() + label[1:], entries, rows)

    def ranking(self, measure: str) -> Ranking:
        """Return how the columns rank over the rows by a score; what diverged with some seed is its row's last."""
        losses, higher = {}, read_measure(measure)[0].higher
        for key, entry in self.matrix(measure).entries.items():
            if entry.finished:
                # To nine digits equal runs tie.
                loss = float(f"{entry.spread.mean:.9g}") if entry.spread.number == entry.finished else math.inf
                losses[key] = -loss if higher and loss < math.inf else loss
        return ranked(losses, [row.name for row in self.item.rows], [column.name for column in self.item.columns])

    @property
    def comparison(self) -> Comparison:
        """The columns, compared by test records."""
        return Comparison(self.item, self.places, self.found)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """The published values of the data sets that are run: keys given by hand may choose another."""
        data = {place.key: place.config.task.data for place in self.places if place.config is not None}
        return tuple(r for r in self.item.references if r.data in ("", data.get((r.row, r.column), r.data)))

    def comparisons(self) -> Iterator[tuple[Reference, Entry | None]]:
        """Yield each published value with our entry, None where the place is left out."""
        matrices = {name: self.matrix(name) for name in {entry.measure for entry in self.references}}
        for reference in self.references:
            yield reference, matrices[reference.measure].entries.get((reference.row, reference.column))

    def _entry(self, name: str, measure: Measure, place: Place, other: str | None) -> Entry:
        values, p, partner = self._values(measure, place), None, place
        finished = sum(progress.state == "finished" for progress in self.found[place.key].values())
        if other is not None:
            partner = next(p for p in self.places if p.key == (place.row.name, other))
            differences = paired(values, self._values(measure, partner))
            p, finished = paired_p(differences), len(differences)
            spread = Spread.of(differences)
        else:
            spread = Spread.of(list(values.values()), measure.bounds)
        seeds, opened = len(self.found[place.key]), self._open(place, partner)
        published = self._published(name, place)
        return Entry(measure, other is not None, finished, seeds, spread, p, open=opened, reference=published)

    def _published(self, name: str, place: Place) -> Reference | None:
        wanted = (*place.key, name)
        return next((r for r in self.references if (r.row, r.column, r.measure) == wanted), None)

    def _values(self, measure: Measure, place: Place) -> dict[int, float]:
        finished = {s: progress for s, progress in self.found[place.key].items() if progress.state == "finished"}
        values = {seed: measure.value(progress.values, place.config) for seed, progress in finished.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def _open(self, *pair: Place) -> str:
        """Return the state of the first cell that is not finished; of a pair, the partner's where ours is."""
        for progress in (progress for place in pair for progress in self.found[place.key].values()):
            if progress.state == "failed":
                return "failed"
            if progress.state != "finished":
                return f"{progress.state} {progress.note}".strip()
        return "no pairs"

    def failures(self) -> list[str]:
        """Return one line for each place that was refused and for each cell that failed."""
        lines = [
            f"{place.row.label} | {place.column.label}: refused: {' '.join(place.problem.split())}"
            for place in self.places
            if place.config is None
        ]
        for place in self.places:
            for seed, progress in self.found.get(place.key, {}).items():
                if progress.state == "failed":
                    note = " ".join(progress.note.split())
                    lines.append(f"{place.row.label} | {place.column.label} | seed {seed}: failed: {note}")
        return lines


def table_of(item: Item, places: Sequence[Place], progress: Callable[[Cell], Progress]) -> Table:
    """Return the table of an item's places, given how far each cell is."""
    found: dict[tuple[str, str], Found] = {}
    for cell in sorted(in_order(places), key=lambda cell: cell.seed):
        found.setdefault(cell.place.key, {})[cell.seed] = progress(cell)
    return Table(item, places, found)


_MOST_FAILURES = 20
_ENTRY = (
    "measure row column seeds finished values successes mean std low high p p_holm "
    "published published_std difference verdict source"
)
_CELL = ("row", "column", "seed", "state", "note")
_STATES = ("finished", "stopped", "failed", "refused", "not run")
_LEGEND = (
    "Counts are seeds that succeed of those that are finished. Means are over seeds, ± sample standard deviation; "
    "differences are paired by seed, with the 95 % interval of their mean. '(18 of 20)': only these have a value. "
    f"'[7/20]': only 7 of 20 seeds are finished. '{MEANINGLESS}': says nothing there; '{LEFT_OUT}': left out."
)


def write_table(table: Table, folder: Path, command: str) -> str:
    """Write ``table.md``, ``table.csv`` and ``cells.csv``; return the Markdown.

    `command`: what makes the table; it stands below the title.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(table, command)
    write_whole(folder / "table.md", text)
    entries = [
        {"measure": matrix.name, "row": row, "column": column, **entry.columns}
        for matrix in table.matrices()
        for (row, column), entry in matrix.entries.items()
    ]
    write_csv(folder / "table.csv", _ENTRY.split(), entries)
    cells = list(table.cells())
    names = dict.fromkeys(name for cell in cells for name in cell if name not in ("warnings", "folder"))
    write_csv(folder / "cells.csv", [*(list(names) or _CELL), "folder"], cells)
    return text


def state_words(table: Table) -> str:
    """Return how many cells there are, and how far they are."""
    states = table.states
    parts = [f"{states[state]} {state}" for state in _STATES if states[state]]
    return f"{counted(sum(states.values()), 'cell')}: {', '.join(parts) or 'none'}"


def markdown(table: Table, command: str) -> str:
    """Return the table as Markdown."""
    item = table.item
    parts = [f"# {item.title}", f"`{command}`", f"{state_words(table)}.", item.about]
    parts += [item.source and f"Published: {item.source}.", item.cut and f"Small scale: {item.cut}."]
    for matrix in table.matrices():
        if matrix.rows:
            is_ranked = matrix.name == item.ranked
            text = rank_text(table, matrix.name) if is_ranked else markdown_table(result_table(table, matrix).texts)
            parts += [f"## {matrix.label}", text]
    parts.append(chosen_text(table))
    if len(compared := compared_grid(table)) > 1:
        parts += ["## The paper's values and ours", f"{verdict_words(table)}.", markdown_table(compared)]
    parts += [_LEGEND, code_words(table)]
    if failures := table.failures():
        more = len(failures) - _MOST_FAILURES
        shown = failures[:_MOST_FAILURES] + ([f"and {more} more"] if more > 0 else [])
        parts += ["Failed or refused:", "\n".join(f"- {line}" for line in shown)]
    return "\n\n".join(filter(None, parts)) + "\n"


def rank_text(table: Table, measure: str) -> str:
    """Return a ranking as Markdown: methods downwards, best first, with their scores in each row of data."""
    found, entries = table.ranking(measure), table.matrix(measure).entries
    labels = {line.name: line.label for line in (*table.item.rows, *table.item.columns)}
    lines = []
    for name, mean in found.ranks.items():
        partly = f" ({found.known[name]} of {len(found.rows)})" if found.known[name] < len(found.rows) else ""
        of_rows = [entries.get((row, name)) for row in found.rows]
        cells = [
            tables.Cell(LEFT_OUT if e is None else e.text, math.nan if e is None else e.spread.mean) for e in of_rows
        ]
        lines.append((tables.Cell(f"{mean:.1f}{partly}"), *cells))
    heads = ("mean rank", *(labels[row] for row in found.rows))
    shown = ResultTable("", tuple(labels[name] for name in found.ranks), heads, tuple(lines))
    marked = shown.marked([None, *[read_measure(measure)[0].higher] * len(found.rows)])
    parts = [table.comparison.text(), marked.markdown()]
    if found.p is not None and found.difference is not None:
        parts.append(
            f"Friedman's test over the {len(found.complete)} methods with a score in each of {len(found.rows)} rows "
            f"of data: {p_text(found.p)}; by Nemenyi's test two of them differ at 5 % from {found.difference:.1f} "
            "ranks on. The others are ranked among these, over the rows that they have."
        )
    if missing := [row.label for row in table.item.rows if row.name not in found.rows]:
        parts.append(f"Not run, and left out of the ranks: {', '.join(missing)}.")
    return "\n\n".join(filter(None, parts))


def chosen_text(table: Table) -> str:
    """Return the settings chosen as Markdown: keys downwards, rows of data across; empty where none were."""
    chosen = {place.key: place.chosen for place in table.places if place.candidates and place.chosen is not None}
    rows = [row for row in table.item.rows if any(key[0] == row.name for key in chosen)]
    lines = [["", "chosen among", *(row.label for row in rows)]]
    for column in (column for column in table.item.columns if any(key[1] == column.name for key in chosen)):
        for key, values in column.choose.items():
            own = [(chosen.get((row.name, column.name)) or {}).get(key, LEFT_OUT) for row in rows]
            lines.append([column.label, f"`{key}={','.join(values)}`", *own])
    words = "Settings chosen by validation data of seed 0, in each row of data"
    return f"{words}:\n\n{markdown_table(lines)}" if rows else ""


def result_table(table: Table, matrix: Matrix, letters: Mapping[str, str] | None = None) -> ResultTable:
    """Return a matrix as a table, in each row the best column marked; of differences none is.

    Columns of which it knows nothing are left out. With `letters`, see `reason_letters`, each published value stands
    in brackets.
    """
    columns = [c for c in table.item.columns if any(key[1] == c.name for key in matrix.entries)]
    rows = [row for row in table.item.rows if row.name in matrix.rows]

    def cell(row: Line, column: Line) -> tables.Cell:
        if (entry := matrix.entries.get((row.name, column.name))) is None:
            return tables.Cell(LEFT_OUT if column.name in row.leave_out else MEANINGLESS)
        published = entry.published if letters is not None else ""
        if letters is not None and published and (verdict := _verdict(entry)).kind == OFF:
            found = sorted((letters[reason] for reason in verdict.reasons), key=lambda letter: (len(letter), letter))
            published += f"; {' '.join([OFF, *found])}"
        return tables.Cell(entry.text + (f" ({published})" if published else ""), entry.spread.mean)

    cells = tuple(tuple(cell(row, column) for column in columns) for row in rows)
    found = ResultTable("", tuple(row.label for row in rows), tuple(column.label for column in columns), cells)
    measure, other = read_measure(matrix.name)
    return found if other is not None else found.marked(measure.higher, "rows")


def reason_letters(table: Table) -> dict[str, str]:
    """Return the reasons that are given for what is off, and a letter for each."""
    found = dict.fromkeys(reason for _, entry in table.comparisons() for reason in _verdict(entry).reasons)
    return {
        reason: ascii_lowercase[number % 26] + (str(number // 26) if number >= 26 else "")
        for number, reason in enumerate(found)
    }


def compared_grid(table: Table) -> list[list[str]]:
    """Return the texts of the comparison with the paper, the first row its head."""
    cells = [["", "", "measure", "paper", "ours", "difference", "verdict"]]
    for reference, entry in table.comparisons():
        measure, _ = read_measure(reference.measure)
        lines = ((table.item.rows, reference.row), (table.item.columns, reference.column))
        names = [line.label for among, name in lines for line in among if line.name == name]
        names.append(measure.label + (f" ({reference.source})" if reference.source else ""))
        verdict = _verdict(entry).text
        if entry is None:
            cells.append([*names, reference.text(measure), "", "", verdict])
            continue
        difference = "" if entry.difference is None else measure.number(entry.difference, "+")
        cells.append([*names, entry.published, entry.text, difference, verdict])
    return cells


def verdict_words(table: Table) -> str:
    """Return how many of our values have a published one, and how they compare; empty where none does."""
    compared = [_verdict(entry) for _, entry in table.comparisons()]
    if not compared:
        return ""
    counts, parts = Counter(map(_counted_as, compared)), Counter(_counted_as(v) for v in compared if v.finished)
    undecided = sum(UNDECIDED in verdict.reasons for verdict in compared)
    words = []
    for kind in sorted(counts, key=lambda kind: (_rank(kind), kind)):
        notes = [f"{parts[kind]} unfinished"] if parts[kind] else []
        if kind == OFF and undecided:
            notes.append(f"{undecided} may be chance")
        words.append(f"{counts[kind]} {kind}" + (f" ({', '.join(notes)})" if notes else ""))
    return f"{counted(len(compared), 'comparison')} with published values: {', '.join(words)}"


def _verdict(entry: Entry | None) -> Verdict:
    return (entry and entry.verdict) or Verdict(NOT_RUN)


def _counted_as(verdict: Verdict) -> str:
    return "not finished" if verdict.kind.startswith("stopped") else verdict.kind


def _rank(kind: str) -> int:
    """Return the place of a kind of verdict: what agrees comes first, what was not run last."""
    order = ("within the paper's spread", "within", "never", WIDE, OFF, "not finished", NOT_RUN)
    return next((place for place, begin in enumerate(order) if kind.startswith(begin)), len(order))


def code_words(table: Table) -> str:
    """Return by how many versions of the code the finished runs were made; empty where it is one."""
    finished = (progress.values for found in table.found.values() for progress in found.values())
    versions = len({str(values["code"]) for values in finished if values.get("code")})
    note = f"The runs were made by {versions} versions of the code (see the column code of its cells)."
    return note if versions > 1 else ""
