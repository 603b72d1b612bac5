"""Raw records of a table as a model's inputs, as preprocessing.json says; needs torch and table_text.py.

What a file has otherwise than the run's tables, node.toml next to it (or <name>.toml) says: rename, scale, missing,
missing_in, separator, decimal, encoding, header, columns.
"""

import json
import math
import re
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

import torch
from table_text import (
    DECIMAL_COMMA,
    as_number,
    class_name,
    file_text,
    find_separator,
    records,
    refuse_title,
    scan,
    without_separator_line,
)

RULES = json.loads(Path(__file__).with_name("preprocessing.json").read_text(encoding="utf-8"))
TABLE = json.loads(Path(__file__).with_name("export.json").read_text(encoding="utf-8"))["table"]

Records = list[dict[str, str | None]]

FAR = 4.0
"""Standard deviations from the run's mean that most values of a table do not exceed in the same unit."""


def read_inputs(data: str) -> tuple[torch.Tensor, dict[str, list[str]]]:
    """Return inputs float32 (n, width), and columns of text that go along with predictions.

    Parameters
    ----------
    data
        A table (.csv, .tsv, .txt, .data, also gzipped) with a header, or a JSON list of objects, one for each record;
        null and a key that a record lacks are missing values.

    Returns
    -------
    Tensor, dict
        The inputs; by name the columns that identify a record, and how many of its values are missing, and how many
        are words that no site of the run had.

    Raises
    ------
    ValueError
        If the file cannot be read, a column is missing, or one of numbers holds something else.
    """
    records = read_records(Path(data))
    columns, missing, unknown = [], [0] * len(records), [0] * len(records)
    raw = {column["name"]: _numbers(records, column["name"]) for column in RULES["numeric"]}
    for column in RULES["numeric"]:
        values, mean, std = _tamed(raw[column["name"]], column), column["mean"], column["std"]
        far = [abs(value - mean) / std for value in raw[column["name"]] if not math.isnan(value)]
        if far and statistics.median(far) > FAR:
            print(
                f"warning: {column['name']!r} is far from the run's values in most records; is it another unit?",
                file=sys.stderr,
            )
        filled = [mean if math.isnan(value) else value for value in values]
        columns.append([(value - mean) / std for value in filled])
        missing = [count + math.isnan(value) for count, value in zip(missing, values, strict=True)]
    for column in RULES["numeric"]:
        if column["indicator"]:
            columns.append([float(math.isnan(value)) for value in raw[column["name"]]])
    for column in RULES["categorical"]:
        words = [None if (cell := record.get(column["name"])) is None else class_name(cell) for record in records]
        known = [column["mode"] if word is None else word for word in words]
        categories, two = column["categories"], len(column["categories"]) == 2 and not column["other"]
        columns += [[float(word == shown) for word in known] for shown in (categories[1:] if two else categories)]
        strange = [word not in categories for word in known]
        if column["other"]:
            columns.append([float(value) for value in strange])
        if column["indicator"]:
            columns.append([float(word is None) for word in words])
        missing = [count + (word is None) for count, word in zip(missing, words, strict=True)]
        unknown = [count + value for count, value in zip(unknown, strange, strict=True)]
    x = torch.tensor(columns, dtype=torch.float64).T.float().contiguous()
    if not x.isfinite().all():
        raise ValueError("a number of the table is too large; correct it")
    present = {name for record in records for name in record}
    beside = {name: [record.get(name) or "" for record in records] for name in RULES["ids"] if name in present}
    return x, {**beside, "missing": list(map(str, missing)), "unknown": list(map(str, unknown))}


def read_records(path: Path) -> Records:
    """Return a file's records: each cell's text by the name of its column, None for a missing value."""
    site = _site(path)
    if path.suffix.lower() == ".json":
        found = json.loads(path.read_text(encoding="utf-8"))
        rows: list[dict[str, Any]] = found if isinstance(found, list) else [found]
        decimal = "."
    else:
        rows, decimal = _rows(path, site)
    if not rows:
        raise ValueError(f"{path.name} has no records")
    marks = {*TABLE["missing"], *_listed(site.get("missing", []))} - set(TABLE["cells_of_classes"])
    rename, records = site.get("rename", {}), []
    for row in rows:
        cells = {rename.get(name, name): _cell(cell, marks, decimal) for name, cell in row.items() if name}
        records.append(cells)
    present = {name for record in records for name in record}
    for name in [column["name"] for column in (*RULES["numeric"], *RULES["categorical"])]:
        if name not in present:
            raise ValueError(
                f"{path.name} lacks the column {name!r}; if it has another name, declare it in {path.stem}.toml"
            )
    for name, gone in site.get("missing_in", {}).items():
        _remove(records, name, _listed(gone))
    for name, factor in site.get("scale", {}).items():
        for record, value in zip(records, _numbers(records, name), strict=True):
            record[name] = None if math.isnan(value) else repr(value * factor)
    return records


def _tamed(values: list[float], rule: dict[str, Any]) -> list[float]:
    """Return a column's numbers, clipped where its rule says so; NaN stays."""
    low, high = rule.get("low", -math.inf), rule.get("high", math.inf)
    return [value if math.isnan(value) else float(min(max(value, low), high)) for value in values]


def _numbers(table: Records, name: str) -> list[float]:
    """Return a column's numbers, NaN for a missing one."""
    cells = [record.get(name) for record in table]
    values = [as_number(cell) for cell in cells]
    for row, (cell, value) in enumerate(zip(cells, values, strict=True)):
        if cell is not None and math.isnan(value):
            raise ValueError(f"record {row + 1}, column {name!r}: neither a number nor a mark of a missing value")
        if abs(value) > 1e100:
            raise ValueError(f"record {row + 1}, column {name!r}: the number is infinite or too large")
    return values


def _cell(cell: object, marks: set[str], decimal: str) -> str | None:
    text = "" if cell is None else str(cell).strip()
    if text in marks:
        return None
    return text.replace(",", ".") if decimal == "," and DECIMAL_COMMA.fullmatch(text) else text


def _remove(records: Records, name: str, cells: list[str]) -> None:
    """Take cells of one column for missing values; numbers are compared as numbers."""
    if any(column["name"] == name for column in RULES["numeric"]):
        numbers = set(map(as_number, cells))
        gone = [value in numbers for value in _numbers(records, name)]
    else:
        names = set(map(class_name, cells))
        gone = [(cell := record.get(name)) is not None and class_name(cell) in names for record in records]
    for record, is_gone in zip(records, gone, strict=True):
        record[name] = None if is_gone else record.get(name)


def _site(path: Path) -> dict[str, Any]:
    """Return what the node's file next to a table says of it."""
    stem = re.sub(r"\.(csv|tsv|txt|data|json)(\.gz)?$", "", path.name, flags=re.IGNORECASE)
    for file in (path.with_name("node.toml"), path.with_name(f"{stem}.toml")):
        if file.is_file():
            return tomllib.loads(file.read_text(encoding="utf-8"))
    return {}


def _rows(path: Path, site: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return a text file's rows by its own names, and its decimal mark; what is ambiguous is refused."""
    text, named = without_separator_line(file_text(path, site.get("encoding", ""))[0])
    separator = site.get("separator") or named or find_separator(path, text)
    rows = list(records(path, text, separator))
    if not rows:
        return [], "."
    refuse_title(path, rows[:64])
    has_header = site.get("header", True)
    names = [name.strip() for name in rows[0].cells] if has_header else list(site.get("columns", []))
    _, decimal = scan(path, text, separator, len(names), has_header, site.get("decimal", ""))
    return [dict(zip(names, row.cells, strict=False)) for row in rows[has_header:]], decimal


def _listed(cells: object) -> list[str]:
    return [str(cell) for cell in (cells if isinstance(cells, list) else [cells])]
