"""The table of an item: one matrix of rows and columns for each measure, made of whatever cells are finished."""

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from florets.papers.cells import Place, Progress
from florets.papers.items import Item
from florets.papers.measures import Measure, read_measure
from florets.papers.references import NEVER, NO_VALUE, Reference, Verdict
from florets.reports.statistics import Spread, holm, p_text, paired, paired_p

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
            shown = f"{self.measure.number(self.spread.mean, '+')}"
            if number > 1:
                shown += (
                    f" [{self.measure.number(self.spread.low, '+')}, {self.measure.number(self.spread.high, '+')}]"
                )
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

    @property
    def states(self) -> Counter[str]:
        """Number of cells in each state; refused ones are those of places whose settings are."""
        states = Counter[str](progress.state for found in self.found.values() for progress in found.values())
        states["refused"] = sum(place.seeds for place in self.places if place.config is None)
        return states

    def narrowed(self, chosen: Mapping[str, Sequence[str]], seeds: int | None = None) -> "Table":
        """Return what was asked for of the table, and what is published of that.

        Parameters
        ----------
        chosen
            Names of ``rows``, ``columns`` and ``measures``; of a kind that is not there, all.
        """
        item = self.item
        rows = tuple(row for row in item.rows if row.name in chosen.get("rows", (row.name,)))
        columns = tuple(column for column in item.columns if column.name in chosen.get("columns", (column.name,)))
        places = {(row.name, column.name) for row in rows for column in columns}
        # A difference needs both of its columns.
        others = (None, *(column.name for column in columns))
        measures = tuple(name for name in chosen.get("measures", item.measures) if read_measure(name)[1] in others)
        references = tuple(
            entry for entry in item.references if (entry.row, entry.column) in places and entry.measure in measures
        )
        found = {
            key: {seed: progress for seed, progress in cells.items() if seeds is None or seed < seeds}
            for key, cells in self.found.items()
            if key in places
        }
        return Table(
            replace(item, rows=rows, columns=columns, measures=measures, references=references),
            [place for place in self.places if (place.row.name, place.column.name) in places],
            found,
        )

    def matrices(self) -> Iterator[Matrix]:
        """Yield one matrix for each measure of the item, in its order."""
        for name in self.item.measures:
            yield self.matrix(name)

    def matrix(self, name: str) -> Matrix:
        """Return the matrix of a measure, or of a paired difference between columns."""
        measure, other = read_measure(name)
        labels = {column.name: column.label for column in self.item.columns}
        entries = {}
        for place in self.places:
            if place.column.name == other or place.config is None or not measure.fits(place.config):
                continue
            key = (place.row.name, place.column.name)
            # Without its partner a difference says nothing.
            if other is None or (place.row.name, other) in self.found:
                entries[key] = self._entry(name, measure, place, other)
        for place in self.places:
            if entries and place.config is None and place.column.name != other:
                key = (place.row.name, place.column.name)
                nothing, published = Spread.of([]), self._published(name, key)
                entries[key] = Entry(
                    measure, other is not None, 0, place.seeds, nothing, open="refused", reference=published
                )
        adjusted = holm([entry.p for entry in entries.values()])
        entries = {key: replace(entry, p_holm=p) for (key, entry), p in zip(entries.items(), adjusted, strict=True)}
        rows = tuple(row.name for row in self.item.rows if any(key[0] == row.name for key in entries))
        label = measure.label if other is None else f"{measure.label}, less that of {labels[other]} (equal seeds)"
        return Matrix(name, label, entries, rows)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """The published values of the data sets that are run: keys given by hand may choose another."""
        data = {
            (place.row.name, place.column.name): place.config.task.data
            for place in self.places
            if place.config is not None
        }
        return tuple(
            entry
            for entry in self.item.references
            if entry.data in ("", data.get((entry.row, entry.column), entry.data))
        )

    def comparisons(self) -> Iterator[tuple[Reference, Entry | None]]:
        """Yield each published value with our entry, None where the place is left out."""
        matrices = {name: self.matrix(name) for name in {entry.measure for entry in self.references}}
        for reference in self.references:
            yield reference, matrices[reference.measure].entries.get((reference.row, reference.column))

    def _entry(self, name: str, measure: Measure, place: Place, other: str | None) -> Entry:
        key = (place.row.name, place.column.name)
        values, p = self._values(measure, place), None
        finished = sum(progress.state == "finished" for progress in self.found[key].values())
        if other is not None:
            theirs = next(p for p in self.places if (p.row.name, p.column.name) == (place.row.name, other))
            differences = paired(values, self._values(measure, theirs))
            p, finished = paired_p(differences), len(differences)
            spread = Spread.of(differences)
        else:
            spread = Spread.of(list(values.values()), measure.bounds)
        opened, published = self._open(key, other), self._published(name, key)
        return Entry(
            measure,
            other is not None,
            finished,
            len(self.found[key]),
            spread,
            p,
            open=opened,
            reference=published,
        )

    def _published(self, name: str, key: tuple[str, str]) -> Reference | None:
        return next((r for r in self.references if (r.row, r.column, r.measure) == (*key, name)), None)

    def _values(self, measure: Measure, place: Place) -> dict[int, float]:
        assert place.config is not None
        found = self.found[place.row.name, place.column.name]
        values = {
            seed: measure.read(progress.values, place.config)
            for seed, progress in found.items()
            if progress.state == "finished"
        }
        return {seed: value for seed, value in values.items() if value is not None}

    def _open(self, key: tuple[str, str], other: str | None) -> str:
        """Return the state of the first cell that is not finished; of a pair, the partner's where ours is."""
        keys = [key] if other is None else [key, (key[0], other)]
        for one in keys:
            for progress in self.found[one].values():
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
        labels = {
            (place.row.name, place.column.name): f"{place.row.label} | {place.column.label}" for place in self.places
        }
        for key, found in self.found.items():
            for seed, progress in found.items():
                if progress.state == "failed":
                    lines.append(f"{labels[key]} | seed {seed}: failed: {' '.join(progress.note.split())}")
        return lines
