"""Raw records of a table as a model's inputs, as preprocessing.json says; needs torch and table_text.py."""

import json
import math
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

_OTHERWISE = {"rename", "scale", "missing", "missing_in", "separator", "decimal", "encoding", "header", "columns"}
"""Keys of a node.toml that change how its tables are read, which only `florets predict` does."""
FAR = 4.0
"""Standard deviations from the run's mean that most values of a table do not exceed in the same unit."""


def read_inputs(data: str) -> tuple[torch.Tensor, dict[str, list[str]]]:
    """Return inputs float32 (n, width) of a table or a JSON list of objects, and columns beside predictions.

    These are the columns that identify a record, and how many of its values are missing or unknown.
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
    for file in (path.with_name("node.toml"), path.with_name(f"{path.name.partition('.')[0]}.toml")):
        if file.is_file() and (declared := tomllib.loads(file.read_text(encoding="utf-8")).keys() & _OTHERWISE):
            raise ValueError(
                f"{file.name} declares {', '.join(sorted(declared))}, which only `florets predict` reads: give the "
                "table with the run's names, units and marks, and remove that from the file"
            )
    if path.suffix.lower() == ".json":
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: is damaged: {error}; save it again") from None
        rows: list[dict[str, Any]] = found if isinstance(found, list) else [found]
        decimal = "."
    else:
        rows, decimal = _rows(path)
    if not rows:
        raise ValueError(f"{path.name} has no records")
    marks = {*TABLE["missing"]} - set(TABLE["cells_of_classes"])
    records = [{name: _cell(cell, marks, decimal) for name, cell in row.items() if name} for row in rows]
    present = {name for record in records for name in record}
    for name in [column["name"] for column in (*RULES["numeric"], *RULES["categorical"])]:
        if name not in present:
            raise ValueError(f"{path.name} lacks the column {name!r}")
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


def _rows(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Return a text file's rows by its own names, and its decimal mark; what is ambiguous is refused."""
    text, named = without_separator_line(file_text(path, "")[0])
    separator = named or find_separator(path, text)
    header, *rows = list(records(path, text, separator)) or [None]
    if header is None:
        return [], "."
    refuse_title(path, [header, *rows][:64])
    names = [name.strip() for name in header.cells]
    _, decimal = scan(path, text, separator, len(names), True, "")
    return [dict(zip(names, row.cells, strict=False)) for row in rows], decimal
