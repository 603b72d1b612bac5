"""Form of a file of a table: encoding, separator, decimal mark and records. What is ambiguous is refused."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SNIFFED = 64
"""Records that the form of a file is read from."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)


def file_text(path: Path, encoding: str) -> tuple[str, str]:
    """Return a file's text and its encoding."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is damaged"
        raise ValueError(f"{path.name} cannot be read: {reason}.") from None
    guesses = ["utf-8-sig", *(["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else []), "cp1252"]
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


def find_separator(path: Path, text: str) -> str:
    """Return the separator with which all lines have equally many cells; the header's must agree."""
    widths = {}
    for separator in SEPARATORS:
        try:
            found = {len(record.cells) for record in islice(records(path, text, separator), SNIFFED)}
        except ValueError:
            # Read with a wrong one, a line may be one huge cell.
            continue
        if len(found) == 1 and max(found) > 1:
            widths[separator] = max(found)
    if len(widths) == 1:
        return next(iter(widths))
    lines = [line for line in text.split("\n", 4 * SNIFFED)[: 4 * SNIFFED] if line.strip()]
    named = [separator for separator in SEPARATORS if separator in lines[0]]
    if not widths and len(named) == 1:
        # Lines of other widths are reported with their number later on.
        return named[0]
    if not any(separator in line for line in lines for separator in SEPARATORS):
        raise ValueError(f"{path.name} has only one column: a table needs a target and at least one input.")
    candidates = " or ".join(SEPARATORS[one] for one in widths or named or SEPARATORS)
    raise ValueError(
        f'{path.name}: its separator is ambiguous ({candidates}): name it in the node\'s file, separator = ";".'
    )


def scan(
    path: Path, text: str, separator: str, width: int, has_header: bool, decimal: str = ""
) -> tuple[list[int], str]:
    """Return the line that each record begins in, and the decimal mark unless it is given.

    Raises
    ------
    ValueError
        If the mark is ambiguous, or a line has another number of cells: pandas fills or cuts it.
    """
    lines = []
    commas = points = thousands = dotted = False
    for place, record in enumerate(records(path, text, separator)):
        cells = record.cells
        if len(cells) != width and not (len(cells) == width + 1 and not cells[-1].strip()):
            raise ValueError(
                f"{path.name}, line {record.line}: it has {len(cells)} cells, but there are {width} columns."
            )
        if has_header and not place:
            continue
        lines.append(record.line)
        for cell in map(str.strip, cells):
            if "," in cell:
                if _THOUSANDS.fullmatch(cell):
                    thousands = True
                elif DECIMAL_COMMA.fullmatch(cell):
                    commas = True
            elif "." in cell:
                # 1.234 may be a thousand as well.
                may_be_thousands = _THOUSANDS.fullmatch(cell) is not None
                dotted = dotted or may_be_thousands
                points = points or (not may_be_thousands and _DECIMAL_POINT.fullmatch(cell) is not None)
    if dotted and not points and separator != "," and decimal != ".":
        raise ValueError(
            f"{path.name}: some numbers hold points that may mark thousands: write them without such marks, or say "
            'in the node\'s file that they are decimal points, decimal = ".".'
        )
    if decimal:
        return lines, decimal
    if (commas and points) or (thousands and not commas):
        raise ValueError(
            f"{path.name}: its decimal mark is ambiguous, since numbers hold commas that may mark thousands: name it "
            'in the node\'s file, decimal = "," or decimal = ".".'
        )
    return lines, "," if commas else "."
