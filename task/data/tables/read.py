"""Read one file of a table: what is guessed (separator, decimal mark, encoding) is strict, and reported.

Error texts name files, columns and lines, never a cell: on a real node they reach the server.
"""

import csv
import gzip
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from florets.task.data.tables.declaration import MISSING, Declaration, Site

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".csv.gz", ".tsv.gz")
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SNIFFED = 64
"""Lines that the form of a file is read from."""
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d*),\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3},\d{3}")


@dataclass(frozen=True)
class Table:
    """A table as a site has it, under the names that all sites use.

    Parameters
    ----------
    frame
        Numeric columns float64 with NaN for a missing value, all others of Python strings with None for one.
    notes
        What was detected of the file's form, and what was left out.
    """

    frame: "pd.DataFrame"
    notes: tuple[str, ...] = ()


def is_table(path: Path) -> bool:
    """Return whether a file is a table by the end of its name; hidden files are not."""
    return path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")


def read_table(path: Path, declared: Declaration, site: Site) -> Table:
    """Read a file.

    Parameters
    ----------
    path
        The file: text with a separator, gzipped if its name ends so.
    declared, site
        What the run and the site say of it.

    Raises
    ------
    ValueError
        If it cannot be read, its form is ambiguous, or a column mixes numbers and words.
    """
    import pandas as pd  # a second that only tables need

    text, encoding = _text(path, site.encoding)
    lines = _lines(path, text)
    has_header = declared.header if site.header is None else site.header
    separator = site.separator or _separator(path, lines, has_header)
    rows = list(csv.reader(lines[:_SNIFFED], delimiter=separator, skipinitialspace=True))
    names, notes = _names(path, rows, declared, site, has_header)
    _check_widths(path, text, separator, len(names))
    decimal = site.decimal or _decimal(path, rows[has_header:], separator)
    marks = [*MISSING, *declared.missing, *site.missing]
    words = {declared.target, declared.group, declared.owner, *declared.id, *declared.categorical}
    to_common = {name: site.rename.get(name, name) for name in names}
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=None,
            skiprows=_before_records(text) if has_header else 0,
            names=range(len(names)),
            index_col=False,
            dtype={place: str for place, name in enumerate(names) if to_common[name] in words},
            na_values=marks,
            keep_default_na=False,
            decimal=decimal,
            skipinitialspace=True,
            low_memory=False,
        )
    # The parser's own words can quote a cell.
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{path.name} cannot be read as a table ({type(error).__name__}): check its quotes."
        ) from None
    kept = [place for place, name in enumerate(names) if name and name not in site.drop]
    frame = frame.iloc[:, kept].set_axis([to_common[names[place]] for place in kept], axis=1)
    _check_names(path, frame.columns, site, has_header, names)
    if not len(frame):
        raise ValueError(f"{path.name} has no records.")
    if has_header:
        _refuse_record_as_header(path, frame, [names[place] for place in kept])
    frame = _typed(path, frame, words, has_header, set(marks))
    for name, factor in site.scale.items():
        if frame[name].dtype != np.float64:
            raise ValueError(
                f"{path.name}, column {name!r}: it has a scale in the node's file, but holds no numbers."
            )
        frame[name] *= factor
    form = [] if separator == "," else [_SEPARATORS.get(separator, "the separator that is named")]
    form += ["decimal commas"] if decimal == "," else []
    form += [] if encoding == "utf-8-sig" else [f"encoding {encoding}"]
    notes = [f"read with {', '.join(form)}", *notes] if form else notes
    return Table(frame, tuple(notes))


def _text(path: Path, encoding: str) -> tuple[str, str]:
    """Return a file's text and its encoding."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise ValueError(
            f"{path.name} cannot be read: {error.strerror if isinstance(error, OSError) else error}."
        ) from None
    guesses = ["utf-8-sig", *(["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else []), "cp1252"]
    for name in [encoding] if encoding else guesses:
        try:
            text = content.decode(name)
        except LookupError:
            raise ValueError(f"{path.name}: encoding={name!r} of the node's file is unknown.") from None
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            break
        return text.replace("\r\n", "\n").replace("\r", "\n"), name
    raise ValueError(f"{path.name} is no text that can be read: save it as UTF-8, or name its encoding in node.toml.")


def _lines(path: Path, text: str) -> list[str]:
    lines = [line for line in text.split("\n", 4 * _SNIFFED)[: 4 * _SNIFFED] if line.strip()]
    if not lines:
        raise ValueError(f"{path.name} is empty.")
    return lines


def _before_records(text: str) -> int:
    """Return the number of lines up to and including the header: blank ones may come before it."""
    stripped = text.lstrip("\n \t")
    return text[: len(text) - len(stripped)].count("\n") + 1


def _separator(path: Path, lines: Sequence[str], has_header: bool) -> str:
    """Return the separator with which all lines have equally many cells; the header's must agree."""
    widths = {}
    for separator in _SEPARATORS:
        found = {len(cells) for cells in csv.reader(lines[:_SNIFFED], delimiter=separator, skipinitialspace=True)}
        if len(found) == 1 and max(found) > 1:
            widths[separator] = max(found)
    if len(widths) == 1:
        return next(iter(widths))
    named = [separator for separator in _SEPARATORS if separator in lines[0]]
    if not widths and len(named) == 1:
        # Lines of other widths are reported with their number later on.
        return named[0]
    if not named and not any(separator in line for line in lines for separator in _SEPARATORS):
        raise ValueError(f"{path.name} has one column alone: a table needs a target and at least one input.")
    candidates = " or ".join(_SEPARATORS[one] for one in widths or named or _SEPARATORS)
    raise ValueError(
        f'{path.name}: its separator is ambiguous ({candidates}): name it in the node\'s file, separator = ";".'
    )


def _names(
    path: Path, rows: Sequence[Sequence[str]], declared: Declaration, site: Site, has_header: bool
) -> tuple[list[str], list[str]]:
    """Return the file's column names ("": to be left out), and notes."""
    notes: list[str] = []
    if not has_header:
        names = list(site.columns or declared.columns)
        if len(names) != len(rows[0]):
            raise ValueError(
                f"{path.name} has {len(rows[0])} columns, but columns names {len(names)} (header=false): name all."
            )
        return names, notes
    names = [name.strip() for name in rows[0]]
    numbers = sum(_is_number(name) for name in names)
    if numbers:
        raise ValueError(
            f"{path.name}: {numbers} of the {len(names)} names in its first line are numbers, so that it seems to be "
            "a record and no header. If the file has no header, give header=false and columns=[<first>,...] "
            "(task.table or the node's file); else give its columns names."
        )
    filled = [any(len(row) > place and row[place].strip() for row in rows[1:]) for place in range(len(names))]
    if names[-1] == "" and not filled[-1]:
        # Each line ends with a separator.
        names.pop()
    if all(len(row) == len(names) + 1 and not row[-1].strip() for row in rows[1:]) and len(rows) > 1:
        notes.append("a separator ends each line")
    if names and names[0] == "" and filled[0]:
        notes.append("its first column has no name and was left out as a row index")
    if "" in names[1:]:
        raise ValueError(f"{path.name}: column {names.index('', 1) + 1} has no name; give it one, or remove it.")
    return names, notes


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


def _check_widths(path: Path, text: str, separator: str, width: int) -> None:
    """Refuse lines with another number of cells: pandas fills or cuts them."""
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    try:
        for cells in reader:
            if len(cells) != width and cells and not (len(cells) == width + 1 and not cells[-1].strip()):
                raise ValueError(
                    f"{path.name}, line {reader.line_num}: it has {len(cells)} cells, but there are {width} columns."
                )
    except csv.Error:
        raise ValueError(
            f"{path.name}, line {reader.line_num}: cannot be read as a table; check its quotes."
        ) from None


def _decimal(path: Path, rows: Sequence[Sequence[str]], separator: str) -> str:
    """Return the decimal mark."""
    if separator == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    commas = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    if not commas:
        return "."
    points = any(re.fullmatch(r"[+-]?\d*\.\d+", cell) and not re.fullmatch(r"\d{1,3}\.\d{3}", cell) for cell in cells)
    if points or all(_THOUSANDS.fullmatch(cell) for cell in commas):
        raise ValueError(
            f"{path.name}: its decimal mark is ambiguous, since numbers hold commas that may mark thousands: name it "
            'in the node\'s file, decimal = "," or decimal = ".".'
        )
    return ","


def _check_names(path: Path, names: "pd.Index[str]", site: Site, has_header: bool, own: Sequence[str]) -> None:
    if repeated := [place + 1 for place, twice in enumerate(names.duplicated()) if twice]:
        shown = ", ".join(map(str, repeated[:3]))
        raise ValueError(f"{path.name}: column {shown} has the name of an earlier one; give each its own name.")
    for key, wanted in (("rename", set(own)), ("drop", set(own)), ("scale", set(names))):
        if unknown := [name for name in getattr(site, key) if name not in wanted]:
            raise ValueError(f"{path.name} has no column {unknown[0]!r}, which {key} in the node's file names.")


def _refuse_record_as_header(path: Path, frame: "pd.DataFrame", own: Sequence[str]) -> None:
    """Refuse a first line that holds words of its own columns: it is a record, and its words must not leave."""
    from pandas.api.types import is_string_dtype

    for place, name in enumerate(own):
        column = frame.iloc[:, place]
        if is_string_dtype(column.dtype) and bool((column == name).any()):
            raise ValueError(
                f"{path.name}: the name of column {place + 1} is also a value of it, so that the first line seems to "
                "be a record and no header: give header=false and columns=[<first>,...] (task.table or the node's "
                "file)."
            )


def _typed(path: Path, frame: "pd.DataFrame", words: set[str], has_header: bool, marks: set[str]) -> "pd.DataFrame":
    """Return the frame with columns of float64 and of strings; refuse one that mixes numbers and words."""
    import pandas as pd

    numeric = frame.select_dtypes(include=["number"]).columns
    converted = {}
    for name in frame.columns.difference(numeric, sort=False):
        column = frame[name]
        if column.dtype == np.bool_:
            converted[name] = column.map({True: "true", False: "false"}).astype(object)
            continue
        texts = column.astype(object).where(column.notna(), None)
        texts = texts.map(lambda cell: str(cell).strip() if cell is not None else None)
        # Blanks around a mark.
        texts = texts.map(lambda cell: None if cell in marks else cell)
        if name not in words:
            parsed = pd.to_numeric(
                texts.where(~texts.astype(str).str.contains("_", regex=False), "x"), errors="coerce"
            )
            known = texts.notna()
            wrong = known & parsed.isna()
            if known.any() and not wrong.any():
                converted[name] = parsed.astype(np.float64)
                continue
            if wrong.sum() * 2 < known.sum():
                line = int(np.argmax(wrong.to_numpy())) + 1 + has_header
                raise ValueError(
                    f"{path.name}, column {name!r}: {int(wrong.sum())} of its {int(known.sum())} cells are no "
                    f"numbers, the first in line {line}. If they mark missing values, name the mark in missing "
                    "(task.table or the node's file); if the column holds categories, name it in "
                    "task.table.categorical."
                )
        converted[name] = texts.astype(object)
    values = frame[numeric].to_numpy(dtype=np.float64)
    if np.isinf(values).any():
        row, place = (int(number) for number in np.argwhere(np.isinf(values))[0])
        raise ValueError(f"{path.name}, line {row + 1 + has_header}, column {numeric[place]!r}: an infinite number.")
    whole = pd.DataFrame(values, columns=numeric, index=frame.index)
    parts = [whole, pd.DataFrame(converted, index=frame.index)] if converted else [whole]
    return pd.concat(parts, axis=1)[list(frame.columns)]
