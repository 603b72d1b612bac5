"""Marks that stand in the way of a number in a cell (of thousands, a currency, a unit), named by their kind."""

import re
from collections.abc import Sequence

from florets.task.data.tables.description import Mark
from florets.task.data.tables.table_text import is_number

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

_PATTERNS: dict[Mark, str] = {
    "blanks": r"\d \d",
    "no-break blanks": rf"\d[{_NO_BREAK}]\d",
    "apostrophes": r"\d['\u2019]\d",
    "underscores": r"\d_\d",
    "commas": r"\d,\d{3}(?!\d)",
    "points": r"\.\d{3}[.,]",
    "a currency": _CURRENCY,
    "a percent sign": r"[%‰]",
    "colons (a time)": r":",
    "a slash": r"\d ?/ ?\d",
    "brackets": r"[()]",
    "a minus sign other than -": r"[\u2212\u2013]",
    "quotation marks": r"\"|^['\u2019]",
    "a sign such as < or +": r"[<>≤≥~≈±]|=(?!\")|[-+]$",
}


def is_marked(word: str) -> bool:
    """Return whether a word is a number with a mark in the way, a time, or two numbers with a slash."""
    return not is_plain(word) and any(form.fullmatch(word) for form in (_NUMBER, _TIME, _PAIR))


def is_plain(word: str) -> bool:
    """Return whether a word is a number with a decimal point, or none."""
    return "," not in word and is_number(word)


def is_open(word: str) -> bool:
    """Return whether a word is a category that is a range of numbers: 3+, <5, 10-12, 5 or more."""
    return _OPEN.fullmatch(word) is not None


def marks_of(words: Sequence[str]) -> tuple[Mark, ...]:
    """Return what stands in the way of a column's numbers, from its different words; empty where they are none."""
    words = words[:_LOOKED_AT]
    marked = [word for word in words if is_marked(word)]
    rest = sum(not is_plain(word) for word in words) - len(marked)
    units = {match["unit"] for word in marked if (match := _NUMBER.fullmatch(word))} - {None}
    if not marked or rest > _FEW * len(words) or len(units) > _MOST_UNITS:
        return ()
    found = [name for name, pattern in _PATTERNS.items() if any(re.search(pattern, word) for word in marked)]
    return (*found, "letters (a unit)") if units else tuple(found) or ("a decimal mark of another kind",)


def in_the_way(marks: Sequence[Mark]) -> str:
    """Return what is wrong with cells that have marks, and the remedy, after their name."""
    pairs = "; of two numbers in a cell make two columns" if "a slash" in marks else ""
    return (
        f"hold digits and are no plain numbers because of {' and '.join(marks)}; write plain numbers, all in one "
        f"unit, such as 45120, 0.45 or 1.5{pairs}"
    )
