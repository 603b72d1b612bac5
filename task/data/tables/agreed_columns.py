"""The input columns that sites agree on: which they are, and whether they hold numbers or categories."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_GUESSED, ColumnSummary, Description
from florets.task.data.tables.marks import in_the_way, is_open
from florets.task.data.tables.names import (
    NODE_FILE_WORDS,
    listed,
    missing_columns,
    nearest_columns,
    toml_key,
    toml_text,
)

_ENOUGH = 20
"""Fewest records with which a site counts in the decision on a column's type."""
ENCODING = (
    f"its file is no UTF-8, and was read as cp1252; name its encoding in {NODE_FILE_WORDS}, such as encoding = "
    '"cp1250" (or "cp1252" where the letters are right), or save it as UTF-8'
)


def agreed_columns(
    declared: Declaration,
    sites: Mapping[str, Description],
    left_out: dict[str, str],
    notes: list[str],
    warnings: list[str],
) -> tuple[dict[str, dict[str, ColumnSummary]], str, list[str]]:
    """Return the summaries of each input column by site, the column that groups records, and those that are ids."""
    own = {key: {column.name: column for column in site.columns} for key, site in sites.items()}
    counts = Counter(name for columns in own.values() for name in columns)
    order = list(dict.fromkeys(name for columns in own.values() for name in columns))
    if declared.columns:
        order = [name for name in declared.columns if name in counts]
        common = order
    else:
        usual = {name for name in order if counts[name] * 2 > len(sites)}
        # In the order of a site that has most of them, whose names are likely to be right.
        first = max(own.values(), key=lambda columns: len(usual & columns.keys()))
        common = [name for name in dict.fromkeys((*first, *order)) if name in usual]
    inputs, repeated, ids = [], [], []
    for name in common:
        summaries = [columns[name] for columns in own.values() if name in columns]
        role = _role(declared, name, summaries)
        if role == "input":
            inputs.append(name)
            continue
        if role == "marked":
            marked = [key for key, columns in own.items() if name in columns and columns[name].role == "marked"]
            marks = tuple(dict.fromkeys(mark for one in summaries for mark in one.marks))
            at = "" if len(marked) == len(own) else f" at {listed(marked)}"
            warnings.append(
                f"{name!r} is not used as an input: its cells{at} {in_the_way(marks)}; if they are categories, name "
                "it in task.table.categorical"
            )
            continue
        ids += [name] if role == "id" else []
        if role == "id" and any(summary.repeats for summary in summaries):
            repeated.append((sum(summary.distinct for summary in summaries), name))
        notes.append(
            f"{name!r} is not used as an input: {_WHY[role]} "
            "(to use it, name it in task.table.columns or .categorical)"
        )
    group = declared.group
    ids_that_repeat = Counter(site.group for site in sites.values() if site.group in declared.id)
    if not group and (repeated or ids_that_repeat):
        # Visits are of patients: the coarser one.
        group = min(repeated)[1] if repeated else ids_that_repeat.most_common(1)[0][0]
        notes.append(f"{group!r} repeats: records with one value of it stay together (task.table.group)")
    kept = set(common)
    if rare := [name for name in order if name not in kept]:
        half = [name for name in rare if counts[name] * 2 == len(sites)]
        if fewer := [name for name in rare if name not in half]:
            notes.append(f"{listed(fewer)}: at fewer than half of the sites, not used")
        if half:
            where = "half of the sites" if len(sites) > 2 else "one site alone"
            warnings.append(
                f"{listed(half)}: at {where}, not used; rename or remove what differs, or name the columns"
            )
    kinds = {name: kind_of([columns[name] for columns in own.values() if name in columns]) for name in inputs}
    for key, columns in own.items():
        # A column that most sites have is no misspelling of another one.
        here = [name for name in columns if name in inputs or name not in kept]
        if lacking := missing_columns(inputs, here):
            names = {its: common for common, its in nearest_columns(inputs, here).items() if its}
            foreign = sites[key].guessed and foreign_words(here)
            pairs = [f"{toml_key(its)} = {toml_text(common)}" for its, common in names.items()]
            same = f"if they mean the same, declare it in {NODE_FILE_WORDS}: rename = {{{', '.join(pairs)}}}; else "
            rest = f"{same if pairs else ''}add it, or do without it at all sites, task.table.drop"
            left_out[key] = f"{lacking}; {ENCODING if foreign else rest}"
            continue
        wrong = [
            name
            for name in inputs
            if columns[name].kind not in ("empty", kinds[name])
            and not (kinds[name] == "text" and _are_codes(columns[name]))
        ]
        if wrong and (marks := columns[wrong[0]].marks):
            left_out[key] = (
                f"has no numbers in column {wrong[0]!r}, unlike the other sites: its cells {in_the_way(marks)}"
            )
        elif wrong:
            holds = "words" if columns[wrong[0]].kind == "text" else "numbers"
            left_out[key] = (
                f"has {holds} in column {wrong[0]!r}, unlike the other sites; correct it, name its missing mark, or, "
                "if the column holds categories, name it in task.table.categorical"
            )
    found = {name: {key: columns[name] for key, columns in own.items() if name in columns} for name in inputs}
    return found, group, ids


_WHY = {
    "id": "it looks like an id, different in each record or named as one",
    "date": "it holds dates",
    "words": "it holds too many different words for categories",
}


def _role(declared: Declaration, name: str, summaries: Sequence[ColumnSummary]) -> str:
    is_marked = any(one.role == "marked" for one in summaries)
    if name in declared.categorical or (name in declared.columns and not is_marked):
        return "input"
    if all(one.role == "input" for one in summaries):
        return "input"
    voters = (
        [one for one in summaries if one.known >= _ENOUGH] or [one for one in summaries if one.known] or summaries
    )
    votes = Counter(one.role for one in voters)
    return max(votes, key=lambda role: (votes[role], role == "marked"))


def _are_codes(column: ColumnSummary) -> bool:
    """Return whether numbers can be categories of a column that has words at other sites."""
    return column.kind == "numeric" and column.whole and column.distinct <= MOST_GUESSED


def kind_of(summaries: Sequence[ColumnSummary]) -> str:
    """Return what the column holds at most sites, "empty" where nowhere has it a value.

    Few integers are categories where another site has a range of numbers among them, such as 3+.
    """
    texts = [one for one in summaries if one.kind == "text"]
    if any(is_open(word) for one in texts for word in one.categories) and all(
        _are_codes(one) for one in summaries if one.kind == "numeric"
    ):
        return "text"
    kinds = Counter(one.kind for one in summaries if one.kind != "empty")
    # Of two sites the one with words has an unknown mark of a missing value, more likely than not.
    return max(sorted(kinds), key=lambda kind: kinds[kind]) if kinds else "empty"


def foreign_words(words: Iterable[str]) -> set[str]:
    """Return the words with letters beyond ASCII."""
    return {word for word in words if not word.isascii()}
