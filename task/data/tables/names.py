"""Names of columns and classes, and what a cell is: which names are lacking, which are one, what is a number."""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.table_text import as_number

LARGEST = 1e100
"""Number of a table: sums of squares of larger ones overflow."""
MOST_COLUMNS = 100_000
"""Columns of a table that a site describes."""
LONGEST_NAME = 200
"""Characters of a name of a column or category that leaves a site."""
DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?", re.ASCII)

NODE_FILE_WORDS = "its node.toml (of a table without a folder: <its name>.toml)"
"""The file in which a site describes its table, as error messages name it."""
_MOST_NAMED = 5
_MOST_COMPARED = 200
"""Names that are looked through for a near one: comparing costs milliseconds a pair."""


def missing_columns(wanted: Sequence[str], own: Sequence[str]) -> str:
    """Return which of the wanted names a table lacks, each with the nearest of its own; nothing where it has all."""
    has = set(own)
    lacking = [name for name in wanted if name not in has]
    if not lacking:
        return ""
    near = [f"{name!r} (it has {its!r})" if its else repr(name) for name, its in nearest_columns(wanted, own).items()]
    more = f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    return f"lacks {', '.join(near)}{more}"


def nearest_columns(wanted: Sequence[str], own: Sequence[str]) -> dict[str, str]:
    """Return for each of the first names that a table lacks the most similar of its own spare ones, or ""."""
    has, asked = set(own), set(wanted)
    lacking = [name for name in wanted if name not in has]
    spare = [name for name in own if name not in asked][:_MOST_COMPARED]
    near = {}
    for name in lacking[:_MOST_NAMED]:
        found = difflib.get_close_matches(name, spare, n=1, cutoff=0.3)
        near[name] = found[0] if found else ""
        # Each of its names means one column.
        spare = [one for one in spare if one not in found]
    return near


def listed(names: Collection[str]) -> str:
    """Return names in quotes, of many the first ones and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def toml_key(name: str) -> str:
    """Return a name as a key of a TOML file, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)


def toml_text(name: str) -> str:
    """Return a printable name as a string of a TOML file, whose escapes are those of JSON."""
    return json.dumps(name, ensure_ascii=False)


def is_sendable(name: str) -> bool:
    """Return whether a name may leave a site: printable, and not too long."""
    return len(name) <= LONGEST_NAME and name.isprintable()


def as_numbers(cells: Iterable[object]) -> NDArray[np.float64]:
    """Return float64 (n,): what cells (numbers, or texts with a decimal point) say; NaN for what is no number."""
    return np.array([as_number(cell) for cell in cells], dtype=np.float64)
