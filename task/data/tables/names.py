"""Names of columns that sites lack or mean, and what a cell is: a number, one with marks in its way, a category."""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.table_text import as_number, is_number

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
    alike = {one.casefold(): one for one in spare}
    near = {name: alike.pop(name.casefold(), "") for name in lacking[:_MOST_NAMED]}
    # Each of its names means one column.
    spare = [one for one in spare if one not in near.values()]
    for name in [name for name, found in near.items() if not found]:
        if found := difflib.get_close_matches(name, spare, n=1, cutoff=0.3):
            near[name] = found[0]
            spare.remove(found[0])
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


MARKED = (
    "are not plain numbers: they hold blanks, a currency, a percent sign, a unit or a colon; "
    "write plain numbers, all in one unit, such as 45120, 0.45 or 1.5"
)
"""Fault of cells that have marks, and the remedy; a column's name stands before it."""
_NO_BREAK = "\u00a0\u2007\u2009\u202f"
_CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|ZAR|Rs|kr|zł"
_CURRENCY = rf"(?:[$€£¥₹₩₽₺₪]|R\$|(?:{_CODES})(?!\w)\.?)"
_UNIT = r"(?P<unit>°?[^\W\d_]{1,12}[²³]?(?:[./·*^][^\W_]{1,8}[²³]?)?\.?)"
# Codes begin with a 0, or have groups of other lengths: telephone numbers, account numbers.
_WHOLE = rf"(?:[1-9]\d{{0,2}}(?P<mark>[ '\u2019_,.{_NO_BREAK}])\d{{3}}(?:(?P=mark)\d{{3}})*|0|[1-9]\d*)"
# As spreadsheets write a number as text: '120, ="120".
_TEXT = r"(?:=?\"|['\u2019])"
_AMOUNT = rf"(?:{_WHOLE}(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(
    rf"{_TEXT}?[<>≤≥=~≈±(]*\s*[-+\u2212\u2013]?\s*(?:{_CURRENCY}\s*)?[-+\u2212\u2013]?{_AMOUNT}\s*(?:{_CURRENCY}|[%‰]|{_UNIT})?\s*[-+)]?\"?"
)
_TIME = re.compile(r"[+-]?\d{1,3}:[0-5]\d(:[0-5]\d([.,]\d+)?)?( ?[AaPp]\.?[Mm]\.?)?", re.ASCII)
_PAIR = re.compile(r"[1-9]\d{0,2} ?/ ?[1-9]\d{0,2}", re.ASCII)
_OPEN = re.compile(
    r"[<>≤≥]=?\s*\d+([.,]\d+)?|\d+([.,]\d+)?\s*(\+|(-|\u2013|to|or|and)\s*(\d+([.,]\d+)?|[a-z]+))", re.IGNORECASE
)
_LOOKED_AT = 1000
"""Words of a column that are looked at."""
_FEW = 0.1
"""Fraction of a column's different words that may be something else."""
_MOST_UNITS = 3
"""Different units of one column; with more they are words that follow numbers, as in addresses."""


def of_no_class(records: int, classes: Collection[str]) -> str:
    """Return that records have a target that is not one of the classes, and the remedy."""
    have = "1 record has" if records == 1 else f"{records} records have"
    what = f"{have} a target that is not one of the classes {listed(classes)}"
    return f"{what}: correct it, or declare task.table.classes."


def is_plain(word: str) -> bool:
    """Return whether a word is a number with a decimal point, or none."""
    return "," not in word and is_number(word)


def is_open(word: str) -> bool:
    """Return whether a word is a category that is a range of numbers: 3+, <5, 10-12, 5 or more."""
    return _OPEN.fullmatch(word) is not None


def are_marked(words: Sequence[str]) -> bool:
    """Return whether a column's different words are numbers with marks in the way, times, or pairs of numbers."""
    words = words[:_LOOKED_AT]
    odd = [word for word in words if not is_plain(word)]
    marked = [word for word in odd if any(form.fullmatch(word) for form in (_NUMBER, _TIME, _PAIR))]
    units = {match["unit"] for word in marked if (match := _NUMBER.fullmatch(word))} - {None}
    return bool(marked) and len(odd) - len(marked) <= _FEW * len(words) and len(units) <= _MOST_UNITS
