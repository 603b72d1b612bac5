"""Marks that stand in the way of a number in a cell: of thousands, a currency, a unit."""

import re
from collections.abc import Sequence

from florets.task.data.tables.table_text import is_number

MARKED = (
    "hold digits and are no plain numbers, because of blanks, a currency, a percent sign, a unit, a colon or the "
    "like; write plain numbers, all in one unit, such as 45120, 0.45 or 1.5"
)
"""What is wrong with cells that have marks, and the remedy, after their name."""
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
