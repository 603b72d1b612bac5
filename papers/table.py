"""The table of an item: a matrix of rows and columns for each measure, as Markdown, and its cells as CSV."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from florets.papers.cells import Cell, Place, Progress, in_order
from florets.papers.compared import Comparison
from florets.papers.item import Item, Line
from florets.papers.measures import Measure, read_measure
from florets.papers.references import NEVER, NO_VALUE, OFF, UNDECIDED, Reference, Verdict
from florets.reports import tables
from florets.reports.console import counted
from florets.reports.folder import write_whole
from florets.reports.statistics import Spread, holm, p_text, paired, paired_p
from florets.reports.tables import ResultTable, markdown_table, write_csv

LEFT_OUT, MEANINGLESS = "--", "·"
_NO_VALUES = Spread.of([])


@dataclass(frozen=True)
class Entry:
    """What one matrix has in one place: the spread of the finished cells' values, or of successes (1.0 and 0.0).

    `p`: of a paired difference, by the paired t test with Holm's correction over the matrix. `open`: what is said
    where no cell is finished.
    """

    measure: Measure
    is_difference: bool
    seeds: int
    finished: int = 0
    spread: Spread = _NO_VALUES
    p: float | None = None
    open: str = ""
    reference: Reference | None = None

    @property
    def text(self) -> str:
        """What the table shows, without the published value."""
        if not self.finished:
            return self.open
        shown, number = self._value, self.spread.number
        if self.measure.kind == "mean" and 0 < number < self.finished:
            shown += f" ({number} of {self.finished})"
        return shown + (f" [{self.finished}/{self.seeds}]" if self.finished < self.seeds else "")

    @property
    def _value(self) -> str:
        measure, spread, number = self.measure, self.spread, self.spread.number
        if not number:
            # Finished, but none has a value: an ARI of 0.9 was never reached, or the loss is not finite.
            return NEVER if measure.may_be_never and not self.is_difference else NO_VALUE
        if measure.kind == "count":
            return f"{round(spread.mean * number)} of {number}"
        if not self.is_difference:
            deviation = f" ± {measure.deviation(spread.mean, spread.deviation)}" if number > 1 else ""
            return measure.number(spread.mean) + deviation
        shown, low, high = (measure.number(figure, "+") for figure in (spread.mean, spread.low, spread.high))
        interval = f" [{low}, {high}]" if number > 1 else ""
        return shown + interval + ("" if self.p is None else f", {p_text(self.p)}")

    @property
    def verdict(self) -> Verdict | None:
        """How ours compares with the published value, None where it does not."""
        if self.reference is None or not self.reference.is_comparable or not self.finished:
            return None
        return self.reference.verdict(self.spread, self.measure)


@dataclass(frozen=True)
class Matrix:
    """All entries of one measure, by names of row and column; rows where it means nothing are not in it."""

    name: str
    label: str
    entries: Mapping[tuple[str, str], Entry]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """An item with what its cells have given so far, by the names of row and column and by seed."""

    item: Item
    places: Sequence[Place]
    found: Mapping[tuple[str, str], Mapping[int, Progress]]

    def progress(self, cell: Cell) -> Progress:
        """Return how far a cell is."""
        return self.found[cell.place.key][cell.seed]

    def finished(self, place: Place) -> dict[int, Progress]:
        """Return the finished cells of a place, by seed."""
        found = self.found.get(place.key, {})
        return {seed: found[seed] for seed in sorted(found) if found[seed].state == "finished"}

    @property
    def states(self) -> Counter[str]:
        """Number of cells in each state; refused ones are those of places whose settings are."""
        states = Counter[str](progress.state for found in self.found.values() for progress in found.values())
        states["refused"] = sum(place.seeds for place in self.places if place.config is None)
        return states

    def narrowed(self, chosen: Mapping[str, Sequence[str]], seeds: int | None = None) -> "Table":
        """Return the part with the chosen ``rows``, ``columns`` and ``measures``; of a kind that is missing, all."""
        item = self.item.narrowed(chosen.get("rows"), chosen.get("columns"), chosen.get("measures"))
        places = [p for p in self.places if p.row.name in item.rows and p.column.name in item.columns]
        found = {
            place.key: {s: one for s, one in self.found[place.key].items() if seeds is None or s < seeds}
            for place in places
            if place.key in self.found
        }
        return Table(item, places, found)

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield all that is known of each cell, as a line of ``cells.csv``."""
        for place in self.places:
            for seed, progress in self.found.get(place.key, {}).items():
                row, column = place.key
                known = {"row": row, "column": column, "seed": seed, "state": progress.state, "note": progress.note}
                values: Mapping[Any, Any] = progress.values
                yield {**known, **values, "folder": place.folder / f"seed-{seed}"}

    def matrix(self, name: str) -> Matrix:
        """Return the matrix of a measure, or of a paired difference between columns."""
        measure, other = read_measure(name)
        partners = {p.row.name: p for p in self.places if p.column.name == other and p.config is not None}
        entries: dict[tuple[str, str], Entry] = {}
        for place in self.places:
            # Without its partner a difference says nothing.
            if place.column.name == other or (other is not None and place.row.name not in partners):
                continue
            if place.config is None:
                entry = Entry(measure, other is not None, place.seeds, open="refused")
            elif measure.fits(place.config):
                entry = self._entry(measure, place, partners.get(place.row.name))
            else:
                continue
            entries[place.key] = replace(entry, reference=self._published(name, place))
        if all(entry.open == "refused" for entry in entries.values()):
            entries = {}
        adjusted = holm([entry.p for entry in entries.values()])
        entries = {key: replace(entry, p=p) for (key, entry), p in zip(entries.items(), adjusted, strict=True)}
        rows = tuple(row for row in self.item.rows if any(key[0] == row for key in entries))
        label = measure.label
        if other is not None:
            label += f", less that of {self.item.columns[other].label} (equal seeds)"
        return Matrix(name, label[:1].upper() + label[1:], entries, rows)

    def _entry(self, measure: Measure, place: Place, partner: Place | None) -> Entry:
        values, p, pair = self._values(measure, place), None, [place]
        finished, spread = len(self.finished(place)), Spread.of(list(values.values()), measure.bounds)
        if partner is not None:
            differences = paired(values, self._values(measure, partner))
            pair, p = [place, partner], paired_p(differences)
            finished, spread = len(differences), Spread.of(differences)
        return Entry(measure, partner is not None, len(self.found[place.key]), finished, spread, p, self._open(pair))

    def _published(self, name: str, place: Place) -> Reference | None:
        wanted = (*place.key, name)
        return next((r for r in self.references if (r.row, r.column, r.measure) == wanted), None)

    def _values(self, measure: Measure, place: Place) -> dict[int, float]:
        values = {seed: measure.value(one.values, place.config) for seed, one in self.finished(place).items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def _open(self, pair: Sequence[Place]) -> str:
        """Return the state of the first cell that is not finished; of a pair, the partner's where ours is."""
        for progress in (progress for place in pair for progress in self.found[place.key].values()):
            if progress.state == "failed":
                return "failed"
            if progress.state != "finished":
                return f"{progress.state} {progress.note}".strip()
        return "no pairs"

    @property
    def comparison(self) -> Comparison:
        """The columns, compared by test records."""
        return Comparison(self.item, self.places, self.found)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """The published values of the data sets that are run: keys given by hand may choose another."""
        data = {place.key: place.config.task.data for place in self.places if place.config is not None}
        return tuple(r for r in self.item.references if r.data in ("", data.get((r.row, r.column), r.data)))

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """How ours compare with the published values, as far as cells are finished."""
        names = dict.fromkeys(reference.measure for reference in self.references)
        entries = (entry for name in names for entry in self.matrix(name).entries.values())
        return [verdict for entry in entries if (verdict := entry.verdict) is not None]

    def failures(self) -> list[str]:
        """Return one line for each place that was refused and for each cell that failed."""
        lines = []
        for place in self.places:
            name = f"{place.row.label} | {place.column.label}"
            if place.config is None:
                lines.append(f"{name}: refused: {' '.join(place.problem.split())}")
            for seed, progress in self.found.get(place.key, {}).items():
                if progress.state == "failed":
                    lines.append(f"{name} | seed {seed}: failed: {' '.join(progress.note.split())}")
        return lines


def table_of(item: Item, places: Sequence[Place], progress: Callable[[Cell], Progress]) -> Table:
    """Return the table of an item's places, given how far each cell is."""
    found: dict[tuple[str, str], dict[int, Progress]] = {}
    for cell in sorted(in_order(places), key=lambda cell: cell.seed):
        found.setdefault(cell.place.key, {})[cell.seed] = progress(cell)
    return Table(item, places, found)


# As text

_MOST_FAILURES = 20
_RANKED = "skill"
"""The measure of which methods are ranked."""
_STATES = ("finished", "stopped", "failed", "refused", "not run")
_LEGEND = (
    "Counts are seeds that succeed of those that are finished. Means are over seeds, ± sample standard deviation; "
    "differences are paired by seed, with the 95 % interval of their mean. '(18 of 20)': only these have a value. "
    f"'[7/20]': only 7 of 20 seeds are finished. '{MEANINGLESS}': says nothing there; '{LEFT_OUT}': left out."
)


def write_table(table: Table, folder: Path, command: str) -> None:
    """Write ``table.md`` and ``cells.csv``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "table.md", markdown(table, command))
    cells = list(table.cells())
    write_csv(folder / "cells.csv", list(dict.fromkeys(name for cell in cells for name in cell)), cells)


def state_words(table: Table) -> str:
    """Return how many cells there are, and how far they are."""
    states = table.states
    parts = [f"{states[state]} {state}" for state in _STATES if states[state]]
    return f"{counted(sum(states.values()), 'cell')}: {', '.join(parts) or 'none'}"


def markdown(table: Table, command: str) -> str:
    """Return the table as a text of its own."""
    parts = [f"# {table.item.title}", body(table, command, table.item.about), _LEGEND]
    if failures := table.failures():
        more = len(failures) - _MOST_FAILURES
        shown = failures[:_MOST_FAILURES] + ([f"and {more} more"] if more > 0 else [])
        parts += ["Failed or refused:", "\n".join(f"- {line}" for line in shown)]
    return "\n\n".join(parts) + "\n"


def body(table: Table, command: str, about: str) -> str:
    """Return the matrices as Markdown, below the command that makes them; `about` stands between."""
    item, letters = table.item, _reason_letters(table)
    parts = [f"`{command}`: {state_words(table)}.", about, item.source and f"Published: {item.source}."]
    parts.append(item.cut and f"Small scale: {item.cut}.")
    for matrix in map(table.matrix, item.measures):
        if matrix.rows:
            is_ranked = matrix.name == _RANKED
            shown = _ranking(table, matrix) if is_ranked else markdown_table(_turned(table, matrix, letters).texts)
            parts += [f"{matrix.label}:", shown]
    parts.append(_chosen(table))
    if table.references:
        words = verdict_words(table)
        how = f", with `{OFF}` where ours is not near it. {words}" if words else "; these runs were cut short"
        parts.append(f"In brackets what is published{how}.")
    if letters:
        reasons = (f"- {OFF} {letter}: {reason}" for reason, letter in letters.items())
        parts.append("\n".join(["Possible reasons:\n", *reasons]))
    return "\n\n".join(filter(None, parts))


def _turned(table: Table, matrix: Matrix, letters: Mapping[str, str]) -> ResultTable:
    """Return a matrix with published values; what there is more of, rows of data or methods, stands in rows."""
    found = result_table(table, matrix, letters)
    return found if len(found.rows) > len(found.columns) else found.turned


def _ranking(table: Table, matrix: Matrix) -> str:
    """Return the answer of a leaderboard, and the methods' scores, best mean rank first."""
    comparison, found = table.comparison, result_table(table, matrix).turned
    ranks = {table.item.columns[name].label: mean for name, mean in comparison.mean_ranks().items()}
    lines = dict(zip(found.rows, found.cells, strict=True))
    # The oracle has no rank.
    order = [*(label for label in ranks if label in lines), *(label for label in lines if label not in ranks)]
    cells = tuple((tables.Cell(f"{ranks[one]:.1f}" if one in ranks else ""), *lines[one]) for one in order)
    shown = replace(found, rows=tuple(order), columns=("mean rank", *found.columns), cells=cells)
    parts = [comparison.text(), shown.markdown()]
    if missing := [row.label for row in table.item.rows.values() if row not in comparison.rows]:
        parts.append(f"Not run: {', '.join(missing)}.")
    return "\n\n".join(filter(None, parts))


def _chosen(table: Table) -> str:
    """Return the settings chosen as Markdown: keys downwards, rows of data across; empty where none were."""
    chosen = {place.key: place.chosen for place in table.places if place.candidates and place.chosen is not None}
    rows = [row for row in table.item.rows.values() if any(key[0] == row.name for key in chosen)]
    lines = [["", "chosen among", *(row.label for row in rows)]]
    for column in (column for column in table.item.columns.values() if any(key[1] == column.name for key in chosen)):
        for key, values in column.choose.items():
            own = [(chosen.get((row.name, column.name)) or {}).get(key, LEFT_OUT) for row in rows]
            lines.append([column.label, f"`{key}={','.join(values)}`", *own])
    words = "Settings chosen by validation data of seed 0, in each row of data"
    return f"{words}:\n\n{markdown_table(lines)}" if rows else ""


def result_table(table: Table, matrix: Matrix, letters: Mapping[str, str] | None = None) -> ResultTable:
    """Return a matrix as a table, in each row the best column marked; of differences none is.

    Columns of which it knows nothing are left out. With `letters`, of the reasons, each published value stands in
    brackets.
    """
    columns = [c for c in table.item.columns.values() if any(key[1] == c.name for key in matrix.entries)]
    rows = [table.item.rows[name] for name in matrix.rows]

    def cell(row: Line, column: Line) -> tables.Cell:
        if (entry := matrix.entries.get((row.name, column.name))) is None:
            return tables.Cell(LEFT_OUT if column.name in row.leave_out else MEANINGLESS)
        if letters is None or entry.reference is None:
            return tables.Cell(entry.text, entry.spread.mean)
        published, verdict = entry.reference.printed, entry.verdict
        if verdict is not None and verdict.kind == OFF:
            published += f"; {' '.join([OFF, *sorted(letters[reason] for reason in verdict.reasons)])}"
        return tables.Cell(f"{entry.text} ({published})", entry.spread.mean)

    cells = tuple(tuple(cell(row, column) for column in columns) for row in rows)
    found = ResultTable("", tuple(row.label for row in rows), tuple(column.label for column in columns), cells)
    measure, other = read_measure(matrix.name)
    return found if other is not None else found.marked(measure.higher, "rows")


def _reason_letters(table: Table) -> dict[str, str]:
    """Return the reasons that are given for what is off, and a letter for each."""
    reasons = dict.fromkeys(reason for verdict in table.verdicts for reason in verdict.reasons)
    letters = [*ascii_lowercase, *(f"{letter}1" for letter in ascii_lowercase)]
    return dict(zip(reasons, letters, strict=False))


def verdict_words(table: Table) -> str:
    """Return how many of our values have a published one, and how they compare; empty where none does."""
    number = sum(reference.is_comparable for reference in table.references)
    if not number:
        return ""
    if not table.verdicts:
        return f"{counted(number, 'published value')}, none compared yet"
    kinds = Counter(verdict.kind for verdict in table.verdicts)
    words = [f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda pair: pair[0] == OFF)]
    if undecided := sum(UNDECIDED in verdict.reasons for verdict in table.verdicts):
        words[-1] += f" ({undecided} may be chance)"
    if missing := number - len(table.verdicts):
        words.append(f"{missing} not finished")
    return f"{counted(number, 'published value')}: {', '.join(words)}"
