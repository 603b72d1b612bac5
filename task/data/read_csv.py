"""Samples from a CSV file with a header."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from florets.task.data.samples import Samples, samples, targets


@dataclass(frozen=True)
class Columns:
    """Which columns of a table make up an input, in this order, which one is predicted, and which names the owner."""

    inputs: tuple[str, ...]
    target: str
    owner: str | None = None


def read_header(path: Path) -> list[str]:
    """Return the names of a table's columns, in the file's order.

    Raises
    ------
    ValueError
        If the file cannot be read, or its header has one name twice.
    """
    return _read(path, header_only=True)[0]


def find_columns(path: Path, target: str | None, columns: Sequence[str] | None, owner: str | None = None) -> Columns:
    """Return which columns of a table are inputs, which is the target, and which says whose a line is.

    Parameters
    ----------
    path
        The file: UTF-8, commas, a header.
    target
        Name of the column to predict; None: the last one that is no input.
    columns
        Names of the columns that make up an input, in this order; None: all but the others, in the file's order.
    owner
        Name of the column that says whose each line is; None: there is none.

    Raises
    ------
    ValueError
        If one of them is missing, or the owner is also an input or the target.
    """
    header = read_header(path)
    if owner is not None and (owner == target or owner in (columns or ())):
        raise ValueError(f"{path}: task.data_options.owner={owner} must be neither an input nor the target.")
    if not target:
        inputs = set(columns or ())
        rest = [name for name in header if name != owner and name not in inputs]
        if not rest:
            raise ValueError(f"{path} has no column to predict beside the inputs {', '.join(columns or ())}.")
        target = rest[-1]
    names = [name for name in header if name not in (target, owner)] if columns is None else list(columns)
    known = set(header)
    missing = [name for name in (*names, target, *([owner] if owner else [])) if name not in known]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing))}; its columns are {', '.join(header)}."
        )
    return Columns(tuple(names), target, owner)


def read_csv(path: Path, columns: Columns, classes: Sequence[str] | None, regression: bool) -> Samples:
    """Read a table: one line for each sample, one column to predict, numbers in the others.

    Parameters
    ----------
    path
        The file: UTF-8, commas, a header.
    columns
        From `find_columns`, of this file or of another whose order this one is to be read in.
    classes, regression
        See `targets`.

    Raises
    ------
    ValueError
        If a column is missing, a line has another number of cells than the header, or a cell is no number.
    """
    header, lines = _read(path)
    place = {name: number for number, name in enumerate(header)}
    wrong = [number for number, cells in lines if len(cells) != len(header)]
    if wrong:
        raise ValueError(f"{path}, line {wrong[0]}: its number of cells is not that of the header, {len(header)}.")
    places = [place[name] for name in columns.inputs]
    try:
        x = np.array([[float(cells[column]) for column in places] for _, cells in lines])
    except ValueError:
        raise ValueError(_no_number(path, lines, places, header)) from None
    values = np.array([cells[place[columns.target]].strip() for _, cells in lines])
    found = samples(path, x, targets(path, values, classes, regression))
    if columns.owner is None:
        return found
    return replace(found, owners=np.array([cells[place[columns.owner]].strip() for _, cells in lines], dtype=np.str_))


def _read(path: Path, header_only: bool = False) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names in the header, and each further line with its number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = [name.strip() for name in next(reader, [])]
            lines = [] if header_only else [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read: {error}. It must be UTF-8 text with commas.") from error
    if not header or len(set(header)) < len(header) or not (lines or header_only):
        raise ValueError(f"{path} must have a header with a different name for each column, and at least one line.")
    return header, lines


def _no_number(path: Path, lines: Sequence[tuple[int, list[str]]], places: Sequence[int], header: list[str]) -> str:
    """Return a message that names the first cell that is no number."""
    for number, cells in lines:
        for column in places:
            try:
                float(cells[column])
            except ValueError:
                return (
                    f"{path}, line {number}, column {header[column]!r}: this is no number. Encode such a column as "
                    "numbers, or leave it out of task.data_options.columns."
                )
    raise AssertionError("unreachable")
