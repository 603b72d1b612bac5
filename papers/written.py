"""The table of an item as files: Markdown, CSV and LaTeX."""

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase

from florets.papers.measures import read_measure
from florets.papers.references import NEVER, OFF, UNDECIDED, Reference, Verdict
from florets.papers.table import LEFT_OUT, MEANINGLESS, NOT_RUN, Entry, Matrix, Table
from florets.reports.console import counted
from florets.reports.folder import whole_file, write_whole
from florets.reports.tables import Cell, ResultTable, markdown_table, tabular

_MOST_FAILURES = 20
_STATES = ("finished", "stopped", "failed", "refused", "not run")
_LEGEND = (
    "Counts are seeds that succeed of those that are finished. Means are over seeds, ± sample standard deviation; "
    "differences are paired by seed, with the 95 % interval of their mean. '(18 of 20)': only these have a value. "
    f"'[7/20]': only 7 of 20 seeds are finished. '{MEANINGLESS}': says nothing there; '{LEFT_OUT}': left out."
)


def write_table(table: Table, folder: Path, command: str) -> str:
    """Write ``table.md``, ``table.csv``, ``cells.csv`` and ``table.tex``; return the Markdown.

    Parameters
    ----------
    command
        What makes the table; it stands below the title.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(table, command)
    write_whole(folder / "table.md", text)
    write_whole(folder / "table.tex", latex(table, command))
    _write_entries(table, folder / "table.csv")
    _write_cells(table, folder / "cells.csv")
    return text


def state_words(table: Table) -> str:
    """Return how many cells there are, and how far they are."""
    states = table.states
    parts = [f"{states[state]} {state}" for state in _STATES if states[state]]
    return f"{counted(sum(states.values()), 'cell')}: {', '.join(parts) or 'none'}"


def markdown(table: Table, command: str) -> str:
    """Return the table as Markdown."""
    item = table.item
    parts = [f"# {item.title}", f"`{command}`", f"{state_words(table)}."]
    parts += [text for text in (item.about, item.source and f"Published: {item.source}.") if text]
    if item.cut:
        parts.append(f"Small scale: {item.cut}.")
    for matrix in table.matrices():
        if matrix.rows:
            parts += [f"## {matrix.label[:1].upper()}{matrix.label[1:]}", markdown_table(grid(table, matrix))]
    if len(compared := compared_grid(table)) > 1:
        parts += ["## The paper's values and ours", f"{verdict_words(table)}.", markdown_table(compared)]
    parts.append(_LEGEND)
    if words := code_words(table):
        parts.append(words)
    if failures := table.failures():
        more = len(failures) - _MOST_FAILURES
        shown = failures[:_MOST_FAILURES] + ([f"and {more} more"] if more > 0 else [])
        parts += ["Failed or refused:", "\n".join(f"- {line}" for line in shown)]
    return "\n\n".join(parts) + "\n"


def grid(table: Table, matrix: Matrix) -> list[list[str]]:
    """Return the texts of a matrix, the first row its head; columns of which it knows nothing are left out."""
    return result_table(table, matrix).texts


def result_table(table: Table, matrix: Matrix) -> ResultTable:
    """Return a matrix as a table, in each row the best column marked; of differences none is."""
    columns = [c for c in table.item.columns if any(key[1] == c.name for key in matrix.entries)]
    labels = {row.name: row.label for row in table.item.rows}
    left_out = {(row.name, column) for row in table.item.rows for column in row.leave_out}

    def cell(key: tuple[str, str]) -> Cell:
        if (entry := matrix.entries.get(key)) is None:
            return Cell(LEFT_OUT if key in left_out else MEANINGLESS)
        return Cell(entry.text, entry.spread.mean)

    found = ResultTable(
        "",
        tuple(labels[row] for row in matrix.rows),
        tuple(column.label for column in columns),
        tuple(tuple(cell((row, column.name)) for column in columns) for row in matrix.rows),
    )
    measure, other = read_measure(matrix.name)
    return found if other is not None else found.marked(measure.higher, "rows")


def methods_grid(table: Table, matrix: Matrix, letters: Mapping[str, str]) -> list[list[str]]:
    """Return the texts of a matrix turned: methods down, data across, published values in brackets.

    Parameters
    ----------
    letters
        What stands for the reasons of what is off; see `reason_letters`.
    """
    turned = [list(texts) for texts in zip(*grid(table, matrix), strict=True)]
    labels = {row.name: row.label for row in table.item.rows}
    columns = {column.label: column.name for column in table.item.columns}
    across = {labels[row]: row for row in matrix.rows}
    for texts in turned[1:]:
        for place, label in enumerate(turned[0][1:], start=1):
            entry = matrix.entries.get((across[label], columns[texts[0]]))
            if entry is not None and entry.published:
                texts[place] += f" ({'; '.join(filter(None, [entry.published, _off_in_short(entry, letters)]))})"
    return turned


def _off_in_short(entry: Entry, letters: Mapping[str, str]) -> str:
    verdict = _verdict(entry)
    found = sorted((letters[reason] for reason in verdict.reasons), key=lambda letter: (len(letter), letter))
    return " ".join([OFF, *found]) if verdict.kind == OFF else ""


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
        names = [*_labels(table, reference), measure.label]
        if reference.source:
            names[2] += f" ({reference.source})"
        verdict = _verdict(entry).text
        if entry is None:
            cells.append([*names, reference.text(measure), "", "", verdict])
            continue
        difference = "" if entry.difference is None else measure.number(entry.difference, "+")
        cells.append([*names, entry.published, entry.text, difference, verdict])
    return cells


def verdict_words(table: Table) -> str:
    """Return how many of our values stand beside a published one, and how they compare; empty where none does."""
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


def _labels(table: Table, reference: Reference) -> list[str]:
    lines = ((table.item.rows, reference.row), (table.item.columns, reference.column))
    return [line.label for among, name in lines for line in among if line.name == name]


def _verdict(entry: Entry | None) -> Verdict:
    return (entry and entry.verdict) or Verdict(NOT_RUN)


def _counted_as(verdict: Verdict) -> str:
    return "not finished" if verdict.kind.startswith("stopped") else verdict.kind


def _rank(kind: str) -> int:
    """Return the place of a kind of verdict: what agrees comes first, what was not run last."""
    order = ("within the paper's spread", "within", "never", OFF, "not finished", NOT_RUN)
    return next((place for place, begin in enumerate(order) if kind.startswith(begin)), len(order))


def latex(table: Table, command: str) -> str:
    """Return the table as LaTeX: one tabular for each measure, to be included in a page of one's own."""
    lines = [f"% {table.item.title}", f"% {command}", f"% {state_words(table)}"]
    for matrix in table.matrices():
        if matrix.rows:
            lines += ["", f"% {matrix.label}", result_table(table, matrix).latex().rstrip()]
    if len(compared := compared_grid(table)) > 1:
        lines += ["", f"% {verdict_words(table)}", *tabular(compared)]
    return "\n".join(lines) + "\n"


def _write_entries(table: Table, path: Path) -> None:
    """Write one line for each measure, row and column."""
    head = (
        "measure row column seeds finished values successes mean std low high p p_holm "
        "published published_std difference verdict source"
    )
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head.split())
        for matrix in table.matrices():
            for (row, column), entry in matrix.entries.items():
                spread = entry.spread
                is_count = entry.measure.kind == "count"
                successes = round(spread.mean * spread.number) if is_count and spread.number else ""
                means = [spread.mean, spread.deviation, spread.low, spread.high]
                known = ["" if is_count or math.isnan(value) else value for value in means]
                paper = entry.reference
                published = (
                    ["", ""] if paper is None else [NEVER if paper.value is None else paper.value, paper.spread]
                )
                source = "" if paper is None else paper.source
                difference = "" if entry.difference is None else entry.difference
                p_values = ["" if p is None else p for p in (entry.p, entry.p_holm)]
                counts = (entry.seeds, entry.finished, spread.number, successes)
                verdict = "" if entry.verdict is None else entry.verdict.text
                compared = (*published, difference, verdict, source)
                writer.writerow([matrix.name, row, column, *counts, *known, *p_values, *compared])


def _write_cells(table: Table, path: Path) -> None:
    """Write one line for each cell, with all that is known of it."""
    names = _value_names(table)
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "column", "seed", "state", "note", *names, "folder"])
        for place in table.places:
            key = (place.row.name, place.column.name)
            for seed, progress in table.found.get(key, {}).items():
                values = [progress.values.get(name) for name in names]
                folder = place.folder / f"seed-{seed}"
                writer.writerow([*key, seed, progress.state, progress.note, *values, folder])


def code_words(table: Table) -> str:
    """Return by how many versions of the code the finished runs were made; empty where it is one."""
    finished = (progress.values for found in table.found.values() for progress in found.values())
    versions = len({str(values["code"]) for values in finished if values.get("code")})
    return (
        f"The runs were made by {versions} versions of the code (see the column code of its cells)."
        if versions > 1
        else ""
    )


def _value_names(table: Table) -> Sequence[str]:
    known = (progress.values for found in table.found.values() for progress in found.values())
    return list(dict.fromkeys(name for values in known for name in values if name != "warnings"))
