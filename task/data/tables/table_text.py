"""Text of a table's file: encoding, separator and decimal mark, guessed strictly, and what cells say.

An export takes this file along: it needs the standard library alone. Error texts name files, columns and lines, never
a cell: on a real node they reach the server.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SNIFFED = 64
"""Records that the form of a file is read from."""
GUESSED = "cp1252"
"""Encoding of a file that is no UTF-8."""
_SEPARATOR_LINE = re.compile(r'"?sep=([^\w\s"]|\t)"?[,;|\t]*', re.IGNORECASE)
"""First line that Excel writes and reads."""
_MOST_TITLES = 10
"""Lines above the names that are looked for."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)


def file_text(path: Path, encoding: str) -> tuple[str, str]:
    """Return a file's text and its encoding."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is damaged"
        raise ValueError(f"{path.name} cannot be read: {reason}.") from None
    guesses = ["utf-8-sig", *(["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else []), GUESSED]
    for name in [encoding] if encoding else guesses:
        try:
            text = content.decode(name)
        except LookupError:
            raise ValueError(f"{path.name}: encoding={name!r} of the node's file is unknown.") from None
        except UnicodeError:
            continue
        if "\0" in text:
            break
        if not text.strip():
            raise ValueError(f"{path.name} is empty.")
        return text.replace("\r\n", "\n").replace("\r", "\n"), name
    raise ValueError(f"{path.name} cannot be decoded as text: save it as UTF-8, or name its encoding in node.toml.")


@dataclass(frozen=True)
class Record:
    """A record of a file: its cells, its number with blank ones, and the line that it begins in; both from 1."""

    cells: list[str]
    number: int
    line: int


def records(path: Path, text: str, separator: str) -> Iterator[Record]:
    """Yield a file's records; lines without any content are none."""
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    line = 1
    try:
        for number, cells in enumerate(reader, 1):
            if len(cells) > 1 or (cells and cells[0].strip()):
                yield Record(cells, number, line)
            line = reader.line_num + 1
    except csv.Error:
        raise ValueError(f"{path.name}, line {line}: cannot be read as a table; check its quotes.") from None


def without_separator_line(text: str) -> tuple[str, str]:
    """Return a text whose first line is empty where it named the separator, and the separator, or ""."""
    first, end, rest = text.partition("\n")
    found = _SEPARATOR_LINE.fullmatch(first.rstrip(" "))
    return (end + rest, found[1]) if found else (text, "")


def _titles(widths: Sequence[int], filled: Sequence[int]) -> int:
    """Return how many first records are titles or comments: with few cells, above others that are equally wide."""
    if not widths:
        return 0
    first = next(place for place in range(len(widths)) if len(set(widths[place:])) == 1)
    is_title = first <= min(_MOST_TITLES, len(widths) - 2) and all(2 * one <= widths[-1] for one in filled[:first])
    return first if widths[-1] > 1 and is_title else 0


def refuse_title(path: Path, rows: Sequence[Record]) -> None:
    """Refuse lines above the names: they name no columns, and their text must not leave the site."""
    if count := _titles([len(row.cells) for row in rows], [sum(map(bool, row.cells)) for row in rows]):
        lines = f"line {rows[0].line} seems" if count == 1 else f"lines {rows[0].line} to {rows[count - 1].line} seem"
        raise ValueError(
            f"{path.name}: {lines} to be a title or comment above the table: let the file begin with line "
            f"{rows[count].line}, which has the names; remove what is above."
        )


def find_separator(path: Path, text: str) -> str:
    """Return the separator with which all lines have equally many cells; the header's must agree."""
    read: dict[str, list[Record]] = {}
    for separator in SEPARATORS:
        # Read with a wrong one, a line may be one huge cell.
        with suppress(ValueError):
            read[separator] = list(islice(records(path, text, separator), SNIFFED))
    found = {separator: [len(record.cells) for record in rows] for separator, rows in read.items()}
    widths = [separator for separator, cells in found.items() if len(set(cells)) == 1 and cells[0] > 1]
    if len(widths) == 1:
        return widths[0]
    if not widths:
        for rows in read.values():
            refuse_title(path, rows)
    lines = [line for line in text.split("\n", 4 * SNIFFED)[: 4 * SNIFFED] if line.strip()]
    heads = sorted(((cells[0], separator) for separator, cells in found.items() if cells), reverse=True)
    # Lines of other widths, or that there are none, are reported later on.
    if heads and (not widths or len(lines) == 1) and heads[0][0] > max([1, *(width for width, _ in heads[1:])]):
        return heads[0][1]
    if not any(separator in line for line in lines for separator in SEPARATORS):
        raise ValueError(f"{path.name} has only one column: a table needs a target and at least one input.")
    candidates = " or ".join(SEPARATORS[one] for one in widths or SEPARATORS)
    raise ValueError(
        f'{path.name}: its separator is ambiguous ({candidates}): name it in the node\'s file, separator = ";".'
    )


def scan(
    path: Path, text: str, separator: str, width: int, has_header: bool, decimal: str = ""
) -> tuple[list[int], str]:
    """Return the line that each record begins in, and the decimal mark unless it is given."""
    lines = []
    commas = points = thousands = dotted = False
    # Columns with 1.200, with 350, and with 1200 or 1.5, which no column has where points mark thousands.
    rounded: set[int] = set()
    hundreds: set[int] = set()
    others: set[int] = set()
    for place, record in enumerate(records(path, text, separator)):
        cells = record.cells
        if len(cells) != width and not (len(cells) == width + 1 and not cells[-1].strip()):
            raise ValueError(
                f"{path.name}, line {record.line}: it has {len(cells)} cells, but there are {width} columns."
            )
        if has_header and not place:
            continue
        lines.append(record.line)
        for column, cell in enumerate(map(str.strip, cells)):
            if len(cell) > 2 and cell.isdigit():
                (hundreds if len(cell) == 3 else others).add(column)
            elif "," in cell:
                if _THOUSANDS.fullmatch(cell):
                    thousands = True
                elif DECIMAL_COMMA.fullmatch(cell):
                    commas = True
            elif "." in cell:
                # 1.234 may be a thousand as well.
                may_be_thousands = _THOUSANDS.fullmatch(cell) is not None
                dotted = dotted or may_be_thousands
                points = points or (not may_be_thousands and _DECIMAL_POINT.fullmatch(cell) is not None)
                if not may_be_thousands:
                    others.add(column)
                elif cell[-1] == "0":
                    rounded.add(column)
    mark_thousands = dotted and not points and separator != ","
    # As decimals 1.200 would be written 1.2 where 350 is not 350.000.
    if decimal != "." and (mark_thousands or rounded & hundreds - others):
        raise ValueError(
            f"{path.name}: some numbers hold points that may mark thousands: write them without such marks, or say "
            'in the node\'s file that they are decimal points, decimal = ".".'
        )
    if decimal:
        return lines, decimal
    if (commas and points) or (thousands and not commas):
        raise ValueError(
            f"{path.name}: its decimal mark is ambiguous, since numbers hold commas that may mark thousands: write "
            'them without such marks, or name it in the node\'s file, decimal = "," or decimal = ".".'
        )
    return lines, "," if commas else "."


def class_name(text: object) -> str:
    """Return the name of a class as all sites write it: 1, 1.0 and 1.00 are one class, and so are True and TRUE."""
    name = str(text).strip()
    if name.lower() in ("true", "false"):
        return name.lower()
    if re.fullmatch(r"[+-]?\d+\.0*", name):
        name = name.partition(".")[0]
    return name


def is_number(text: str) -> bool:
    """Return whether a text is a number, with a decimal point or comma; `1_000`, `0x1`, `inf` and `nan` are none."""
    return _NUMBER.fullmatch(text.strip()) is not None


def as_number(cell: object) -> float:
    """Return what a cell (a number, or a text with a decimal point) says; NaN where it is no number."""
    if isinstance(cell, float | int) and not isinstance(cell, bool):
        return float(cell)
    text = cell.strip() if isinstance(cell, str) else ""
    return float(text) if "," not in text and _NUMBER.fullmatch(text) else float("nan")
