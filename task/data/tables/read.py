"""Read one file of a table under the names that all sites use; what its form was is reported.

Error texts name files, columns and lines, never a cell: on a real node they reach the server.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.declaration import MISSING, Declaration, Site
from florets.task.data.tables.description import MOST_CLASSES, MOST_GUESSED
from florets.task.data.tables.names import (
    DATE,
    LARGEST,
    MARKED,
    MOST_COLUMNS,
    NODE_FILE_WORDS,
    are_marked,
    as_numbers,
    is_open,
    is_sendable,
)
from florets.task.data.tables.table_text import (
    DECIMAL_COMMA,
    GUESSED,
    SEPARATORS,
    SNIFFED,
    Record,
    class_name,
    file_text,
    find_separator,
    is_number,
    records,
    refuse_title,
    scan,
    without_separator_line,
)

if TYPE_CHECKING:
    import pandas as pd

_NUMERIC = "iuf"
"""Kinds of NumPy's types of numbers."""


@dataclass(frozen=True)
class Table:
    """A table as a site has it, under the names that all sites use."""

    frame: "pd.DataFrame"
    """Numeric columns float64 with NaN for a missing value, all others of Python strings with None for one."""
    notes: tuple[str, ...] = ()
    """What was detected of the file's form, and what was left out."""
    lines: Sequence[int] = ()
    """Line of the file that each record begins in."""
    guessed: bool = False
    """Whether the file is no UTF-8, and its encoding a guess."""


def read_table(path: Path, declared: Declaration, site: Site) -> Table:
    """Read a file of text with a separator, gzipped if its name ends so, of which the run and the site say this.

    ValueError if it cannot be read, its form is ambiguous, or a column mixes numbers and words.
    """
    import pandas as pd  # a second that only tables need

    text, encoding = file_text(path, site.encoding)
    text, named = without_separator_line(text)
    has_header = site.header is not False
    separator = site.separator or named or find_separator(path, text)
    rows = list(islice(records(path, text, separator), SNIFFED + 1))
    if not rows:
        # Such as a lone quotation mark, which opens a cell that never ends.
        raise ValueError(f"{path.name}: holds no records.")
    refuse_title(path, rows)
    # Only the site itself can say that numbers in the first line are no record of its own.
    is_sure = site.header is True
    names, notes = _names(path, rows, site, has_header, is_sure)
    lines, decimal = scan(path, text, separator, len(names), has_header, site.decimal)
    common = [site.rename.get(name, name) for name in names]
    candidates = [name for name in declared.inputs_of(tuple(common)) if name not in declared.columns]
    # Where none is named, the last one is the target; what may stand in it is said of targets.
    target = declared.target or (candidates[-1] if candidates else "")
    inputs = set(declared.inputs_of(tuple(common))) - {target, *declared.categorical}
    # What a class is declared by is no missing value: a severity "None".
    marks = {*MISSING, *declared.missing, *site.missing} - {raw for raws in declared.classes.values() for raw in raws}
    try:
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=None,
            skiprows=rows[0].number if has_header else 0,
            # One more for a separator at the end of each line.
            names=range(len(names) + 1),
            index_col=False,
            dtype={place: str for place, name in enumerate(common) if name not in inputs},
            na_values=sorted(marks),
            keep_default_na=False,
            # Numbers with the separator in them are quoted; `_typed` reads them.
            decimal="." if decimal == separator else decimal,
            skipinitialspace=True,
            low_memory=False,
        )
    # The parser's own words can quote a cell.
    except (ValueError, OverflowError):
        raise ValueError(f"{path.name} cannot be read as a table: check its quotes.") from None
    if len(frame) != len(lines):
        raise ValueError(f"{path.name} cannot be read as a table: check its quotes.")
    if not lines:
        raise ValueError(f"{path.name} has no records.")
    kept = [place for place, name in enumerate(names) if name and name not in site.drop]
    cells = {place: column.to_numpy() for place, column in frame.items()}
    columns = [cells[place] for place in kept]
    if has_header and not is_sure:
        _refuse_record_as_header(path, columns, [names[place] for place in kept])
    shown = pd.Index([common[place] for place in kept])
    _check_names(path, shown, site, names)
    frame = _typed(path, columns, shown, inputs, lines, marks, decimal)
    for name, gone in site.missing_in.items():
        is_number_column = frame[name].dtype == np.float64
        wrong = set(as_numbers(gone).tolist()) if is_number_column else {class_name(mark) for mark in gone}
        known = frame[name] if is_number_column else frame[name].map(class_name, na_action="ignore")
        frame[name] = frame[name].where(~known.isin(wrong), np.nan if is_number_column else None)
    for name, factor in site.scale.items():
        numbers = as_numbers(frame[name])
        if bool((np.isnan(numbers) & frame[name].notna().to_numpy()).any()):
            raise ValueError(f"{path.name}: {name!r} has a scale in the node's file, but holds no numbers.")
        frame[name] = numbers * factor
    form = [] if separator == "," else [SEPARATORS.get(separator, "the separator that is named")]
    form += ["decimal commas"] if decimal == "," else []
    form += [] if encoding == "utf-8-sig" else [f"encoding {encoding}"]
    notes = [f"read with {', '.join(form)}", *notes] if form else notes
    return Table(frame, tuple(notes), lines, encoding == GUESSED and not site.encoding)


def _names(
    path: Path, read: Sequence[Record], site: Site, has_header: bool, is_sure: bool
) -> tuple[list[str], list[str]]:
    """Return the file's column names ("": to be left out), and notes."""
    notes: list[str] = []
    rows = [row.cells for row in read]
    if not has_header:
        names = list(site.columns)
        if len(names) != len(rows[0]) and not (len(names) + 1 == len(rows[0]) and not rows[0][-1].strip()):
            raise ValueError(
                f"{path.name} has {len(rows[0])} columns, and columns in {NODE_FILE_WORDS} names {len(names)}: "
                "name all."
            )
        return names, notes
    if site.columns:
        raise ValueError(
            f"{path.name}: the node's file names the columns of a file without header; add header=false."
        )
    names = [name.strip() for name in rows[0]]
    numbers = sum(is_number(name) or DATE.fullmatch(name) is not None for name in names)
    if numbers and not is_sure:
        raise ValueError(
            f"{path.name}: {numbers} of the {len(names)} names in its first line are numbers or dates, so that it "
            f"seems to be a record and no header. If the file has no header, say so in {NODE_FILE_WORDS}: header = "
            "false and columns = [<first>, ...]. If they are names, only the site can say so, since they leave it: "
            "header = true."
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
        raise ValueError(
            f"{path.name}, line {read[0].line}: column {names.index('', 1) + 1} has no name; give it one, or remove "
            "it. If this line is a title above the names, remove the line."
        )
    return names, notes


def _check_names(path: Path, names: "pd.Index[str]", site: Site, own: Sequence[str]) -> None:
    """Refuse names that stand twice or cannot be sent; the node's file must name columns that exist."""
    if repeated := [place + 1 for place, twice in enumerate(names.duplicated()) if twice]:
        shown = ", ".join(map(str, repeated[:3]))
        raise ValueError(f"{path.name}: column {shown} has the name of an earlier one; give each its own name.")
    if wrong := [place + 1 for place, name in enumerate(names) if not is_sendable(name)]:
        raise ValueError(f"{path.name}: the name of column {wrong[0]} is too long, or not printable.")
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"{path.name} has {len(names)} columns; at most {MOST_COLUMNS} can be described.")
    for key, wanted in (
        ("rename", set(own)),
        ("drop", set(own)),
        *((key, set(names)) for key in ("scale", "missing_in", "categorical")),
    ):
        if unknown := [name for name in getattr(site, key) if name not in wanted]:
            raise ValueError(f"{path.name} has no column {unknown[0]!r}, which {key} in the node's file names.")


def _refuse_record_as_header(path: Path, columns: Sequence[NDArray[Any]], own: Sequence[str]) -> None:
    """Refuse a first line that most columns hold as values: it is a record, and its words must not leave.

    Where a column of numbers has a word as its name the line is no record; one column may hold its own name.
    """
    words = {place: column for place, column in enumerate(columns) if column.dtype.kind not in _NUMERIC}
    if any(own[place] not in MISSING for place in range(len(columns)) if place not in words):
        return
    names = [class_name(name) for name in own]
    same = [place for place, column in words.items() if names[place] in {class_name(cell) for cell in column}]
    if 2 * len(same) > len(words):
        shown = ", ".join(str(place + 1) for place in same[:3])
        raise ValueError(
            f"{path.name}: the names of most columns (such as column {shown}) are also values of them, so that the "
            f"first line seems to be a record and no header: say so in {NODE_FILE_WORDS}, header = false and "
            "columns = [<first>, ...]. If it holds names, header = true says so."
        )


def _typed(
    path: Path,
    columns: Sequence[NDArray[Any]],
    names: "pd.Index[str]",
    inputs: set[str],
    lines: Sequence[int],
    marks: set[str],
    decimal: str,
) -> "pd.DataFrame":
    """Return the frame with columns of float64 and of strings; refuse an input that mixes numbers and words."""
    import pandas as pd

    numbers: dict[int, NDArray[np.float64]] = {}
    words: dict[int, list[str | None]] = {}
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        if column.dtype.kind in _NUMERIC:
            numbers[place] = column.astype(np.float64)
            continue
        texts = [_cell(cell, marks) for cell in column]
        if decimal == ",":
            texts = [text.replace(",", ".") if text and DECIMAL_COMMA.fullmatch(text) else text for text in texts]
        words[place] = texts
        if name not in inputs:
            continue
        known, parsed = np.array([text is not None for text in texts]), as_numbers(texts)
        wrong = known & np.isnan(parsed)
        if not wrong.any():
            numbers[place] = parsed
            del words[place]
        elif _is_mixture(texts, parsed):
            remedy = "the column holds categories, name it in task.table.categorical"
            problem = _not_numbers(texts, wrong, lines[int(np.argmax(wrong))], remedy)
            raise ValueError(f"{path.name}, column {name!r}: {problem}")
    values = np.stack(list(numbers.values()), axis=1) if numbers else np.empty((len(lines), 0))
    if (huge := np.abs(values) > LARGEST).any():
        row, number = (int(place) for place in np.argwhere(huge)[0])
        raise ValueError(
            f"{path.name}, line {lines[row]}, column {names[list(numbers)[number]]!r}: the number is infinite or too "
            "large."
        )
    whole = pd.DataFrame(values, columns=list(numbers))
    rest = pd.DataFrame({place: pd.Series(texts, dtype=object) for place, texts in words.items()}, index=whole.index)
    return pd.concat([whole, rest], axis=1)[list(range(len(names)))].set_axis(names, axis=1)


def _is_mixture(texts: Sequence[str | None], numbers: NDArray[np.float64]) -> bool:
    """Return whether cells are many different numbers with words among them; few different ones are categories."""
    odd = [text for text, number in zip(texts, numbers, strict=True) if text is not None and np.isnan(number)]
    words, known = set(odd), len(texts) - texts.count(None)
    values = len(np.unique(numbers[np.isfinite(numbers)]))
    different = len(words) + values
    if not odd or not values or (different <= MOST_GUESSED and (2 * different <= known or all(map(is_open, words)))):
        return False
    return 2 * len(odd) < known or 2 * len(words) < different


def _not_numbers(texts: Sequence[str | None], wrong: NDArray[np.bool_], line: int, remedy: str) -> str:
    """Return what is wrong with cells that should be numbers: how many, the line of the first, and the remedy."""
    words = sorted({text for text, odd in zip(texts, wrong, strict=True) if odd and text is not None})
    missing = "If they mark missing values, name the mark in missing (task.table or the node's file)"
    other = f"They {MARKED}" if are_marked(words) else missing
    return (
        f"{int(wrong.sum())} of its {len(texts) - texts.count(None)} cells are not numbers, the first in line "
        f"{line}. {other}; if {remedy}."
    )


_UNKNOWN = re.compile(
    r"[^\w+]+|#.*|(not |un)?(known|available|defined|applicable|done|recorded|specified)|unk|missing|no data|blank"
    r"|n\.?[adk]\.?|n\.?/a\.?|nan|none|null|nil|k\.? ?a\.?|unbekannt|inconnu|desconocido|sconosciuto",
    re.IGNORECASE,
)
"""A word among numbers that means that none is known."""


def check_target(path: Path, table: Table, column: "pd.Series[Any]", declared: Declaration) -> None:
    """Refuse a target of numbers some of whose cells hold neither a number nor a class.

    `column` has the cells of some or all records, by their rows in the table. Classes that are declared hold.
    """
    if column.dtype == np.float64 or declared.classes or declared.regression is False:
        return
    texts = [None if cell is None else str(cell) for cell in column]
    numbers = as_numbers(texts)
    wrong = np.isnan(numbers) & np.array([text is not None for text in texts])
    if not wrong.any() or np.isnan(numbers).all():
        return
    words = {text for text, odd in zip(texts, wrong, strict=True) if text is not None and odd}
    known, different = len(texts) - texts.count(None), len(words) + len(np.unique(numbers[np.isfinite(numbers)]))
    if not declared.regression and not _is_mixture(texts, numbers):
        # Among few classes a word may be one, but not one that says that none is known.
        wrong &= np.array([text is not None and _UNKNOWN.fullmatch(text) is not None for text in texts])
        if not wrong.any():
            return
    elif not declared.regression and len(words) > 2 and different <= MOST_CLASSES and 2 * different <= known:
        return
    line = table.lines[column.index[int(np.argmax(wrong))]]
    remedy = "they are a class, give all classes with their cells, task.table.classes"
    raise ValueError(f"{path.name}, target {column.name!r}: {_not_numbers(texts, wrong, line, remedy)}")


def _cell(cell: object, marks: set[str]) -> str | None:
    """Return a cell's text without the blanks around it; None where it is missing."""
    if cell is None or cell != cell:
        return None
    # pandas reads true and false, and makes them objects where others are missing.
    text = str(cell).lower() if isinstance(cell, bool | np.bool_) else str(cell).strip()
    return None if text in marks else text
