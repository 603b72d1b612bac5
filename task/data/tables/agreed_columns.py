"""The input columns that sites agree on: which they are, and whether they hold numbers or categories."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_GUESSED, ColumnSummary, Description
from florets.task.data.tables.names import (
    MARKED,
    NODE_FILE_WORDS,
    is_open,
    is_plain,
    listed,
    missing_columns,
    nearest_columns,
    toml_key,
    toml_text,
)
from florets.task.data.tables.pooling import categorical_input, numeric_input
from florets.task.data.tables.preprocessing import CategoricalInput, NumericInput

One = TypeVar("One")

_ENOUGH = 20
"""Fewest records with which a site counts in the decision on a column's type."""
ENCODING = (
    f"its file is no UTF-8, and was read as cp1252; name its encoding in {NODE_FILE_WORDS}, such as encoding = "
    '"cp1250" (or "cp1252" where the letters are right), or save it as UTF-8'
)


@dataclass
class Decisions:
    """What is decided on the way to an agreement: sites left out, with the reason; what the user is told."""

    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def staying(self, sites: Mapping[str, One]) -> dict[str, One]:
        """Return what is not of a site that is left out."""
        return {key: one for key, one in sites.items() if key not in self.left_out}


def agreed_columns(
    declared: Declaration, sites: Mapping[str, Description], decided: Decisions
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
    kept = set(common)
    inputs, repeated, ids = [], [], []
    for name in common:
        summaries = [columns[name] for columns in own.values() if name in columns]
        role = _role(declared, name, summaries)
        if role == "input":
            inputs.append(name)
        elif role == "marked":
            marked = [key for key, columns in own.items() if name in columns and columns[name].role == "marked"]
            at = "" if len(marked) == len(own) else f" at {listed(marked)}"
            decided.warnings.append(
                f"{name!r} is not used as an input: its cells{at} {MARKED}; if they are categories, name it in "
                "task.table.categorical"
            )
        else:
            ids += [name] if role == "id" else []
            if role == "id" and any(summary.repeats for summary in summaries):
                repeated.append((sum(summary.distinct for summary in summaries), name))
            decided.notes.append(
                f"{name!r} is not used as an input: {_WHY[role]} "
                "(to use it, name it in task.table.columns or .categorical)"
            )
    group = declared.group
    ids_that_repeat = Counter(site.group for site in sites.values() if site.group in declared.id)
    if not group and (repeated or ids_that_repeat):
        # Visits are of patients: the coarser one.
        group = min(repeated)[1] if repeated else ids_that_repeat.most_common(1)[0][0]
        decided.notes.append(f"{group!r} repeats: records with one value of it stay together (task.table.group)")
    rare = [name for name in order if name not in kept]
    if rare:
        # At half of the sites another name is likely to be the same column's.
        lines = decided.warnings if any(counts[name] * 2 == len(sites) for name in rare) else decided.notes
        lines.append(f"{listed(rare)}: at no more than half of the sites, not used; rename or remove what differs")
    kinds = {name: kind_of([columns[name] for columns in own.values() if name in columns]) for name in inputs}
    for key, columns in own.items():
        # A column that most sites have is no misspelling of another one.
        here = [name for name in columns if name in kinds or name not in kept]
        if reason := _misfit(sites[key], columns, here, kinds):
            decided.left_out[key] = reason
    found = {name: {key: columns[name] for key, columns in own.items() if name in columns} for name in inputs}
    return found, group, ids


def _misfit(
    site: Description, columns: Mapping[str, ColumnSummary], here: Sequence[str], kinds: Mapping[str, str]
) -> str:
    """Return why a site's columns do not fit to the inputs, of these kinds, and the remedy; empty where they do."""
    inputs = list(kinds)
    if lacking := missing_columns(inputs, here):
        if site.guessed and any(not name.isascii() for name in here):
            return f"{lacking}; {ENCODING}"
        names = {its: common for common, its in nearest_columns(inputs, here).items() if its}
        pairs = [f"{toml_key(its)} = {toml_text(common)}" for its, common in names.items()]
        same = f"if they mean the same, declare it in {NODE_FILE_WORDS}: rename = {{{', '.join(pairs)}}}; else "
        return f"{lacking}; {same if pairs else ''}add it, or do without it at all sites, task.table.drop"
    wrong = [
        name
        for name, kind in kinds.items()
        if columns[name].kind not in ("empty", kind) and not (kind == "text" and _are_codes(columns[name]))
    ]
    if not wrong:
        return ""
    if columns[wrong[0]].role == "marked":
        return f"has no numbers in column {wrong[0]!r}, unlike the other sites: its cells {MARKED}"
    holds = "words" if columns[wrong[0]].kind == "text" else "numbers"
    return (
        f"has {holds} in column {wrong[0]!r}, unlike the other sites; correct it, name its missing mark, or, if the "
        "column holds categories, name it in task.table.categorical"
    )


def agreed_inputs(
    declared: Declaration, columns: Mapping[str, Mapping[str, ColumnSummary]], decided: Decisions
) -> tuple[list[NumericInput], list[CategoricalInput]]:
    """Return the model's inputs; ValueError where none is left."""
    numeric: list[NumericInput] = []
    categorical: list[CategoricalInput] = []
    for name, known in columns.items():
        if kind_of(list(known.values())) == "numeric":
            numeric += numeric_input(name, known, decided.notes)
        else:
            categorical += categorical_input(name, list(known.values()), decided.notes)
    for one in categorical:
        odd = [word for word in one.categories if not is_plain(word)]
        if one.name not in declared.categorical and 0 < len(odd) < len(one.categories):
            decided.notes.append(
                f"{one.name!r} has few different values, numbers and words ({listed(odd)}): categories"
            )
    if not numeric and not categorical:
        reasons = "; ".join(decided.notes[-3:]) or "the tables have no other columns than the target"
        raise ValueError(
            f"no column is left that could be an input ({reasons}): name them, task.table.columns or "
            "task.table.categorical; of very few records lower min_count at the nodes."
        )
    return numeric, categorical


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
