"""Raw records of a table as a model's inputs, as preprocessing.json says; needs torch alone.

What a file has otherwise than the run's tables, node.toml next to it (or <name>.toml) says: rename, scale, missing,
missing_in, separator, decimal, encoding, header, columns.
"""

import csv
import gzip
import io
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import torch

RULES = json.loads(Path(__file__).with_name("preprocessing.json").read_text(encoding="utf-8"))
TABLE = json.loads(Path(__file__).with_name("export.json").read_text(encoding="utf-8"))["table"]

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)

Records = list[dict[str, str | None]]


def read_inputs(data: str, which: str) -> tuple[torch.Tensor, dict[str, list[str]]]:
    """Return inputs float32 (n, width), and columns of text that go along with predictions.

    Parameters
    ----------
    data
        A table (.csv, .tsv, .txt, .data, also gzipped) with a header, or a JSON list of objects, one for each record;
        null and a key that a record lacks are missing values.
    which
        Of runs whose sites standardise by their own records: the site whose scale holds. Another name's records, if
        there are 30 or more, have their own.

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
    numeric = {column["name"]: _tamed(_numbers(records, column["name"]), column) for column in RULES["numeric"]}
    scales = _scales(numeric, which)
    for values, (mean, std) in zip(numeric.values(), scales, strict=True):
        filled = [mean if math.isnan(value) else value for value in values]
        columns.append(filled if RULES["standardise"] == "none" else [(value - mean) / std for value in filled])
        missing = [count + math.isnan(value) for count, value in zip(missing, values, strict=True)]
    for column in RULES["numeric"]:
        if column["indicator"]:
            columns.append([float(math.isnan(value)) for value in numeric[column["name"]]])
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


def class_name(text: str) -> str:
    """Return a category as all sites write it: 1, 1.0 and 1.00 are one, and so are True and TRUE."""
    name = text.strip()
    if name.lower() in ("true", "false"):
        return name.lower()
    return name.partition(".")[0] if re.fullmatch(r"[+-]?\d+\.0*", name) else name


def _scales(numeric: dict[str, list[float]], which: str) -> list[tuple[float, float]]:
    """Return mean and standard deviation of each numeric column: the run's, a site's, or those of these records."""
    pooled = [(column["mean"], column["std"]) for column in RULES["numeric"]]
    if RULES["standardise"] != "site" or not numeric:
        return pooled
    if which in RULES["sites"]:
        return list(zip(RULES["sites"][which]["mean"], RULES["sites"][which]["std"], strict=True))
    if len(next(iter(numeric.values()))) < 30:
        raise ValueError("the sites standardise by their own records: name a site, or give 30 records of a new one")
    scales = []
    for values, both in zip(numeric.values(), pooled, strict=True):
        known = [value for value in values if not math.isnan(value)]
        if len(known) < TABLE["min_count"]:
            scales.append(both)
            continue
        mean = math.fsum(known) / len(known)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))
        scales.append((mean, std if std > 1e-9 * abs(mean) else 1.0))
    return scales


def _tamed(values: list[float], rule: dict[str, Any]) -> list[float]:
    """Return a column's numbers, clipped where its rule says so; NaN stays."""
    low, high = rule.get("low", -math.inf), rule.get("high", math.inf)
    return [value if math.isnan(value) else float(min(max(value, low), high)) for value in values]


def _numbers(records: Records, name: str) -> list[float]:
    """Return a column's numbers, NaN for a missing one."""
    cells = [record.get(name) for record in records]
    for row, cell in enumerate(cells):
        if cell is not None and not _NUMBER.fullmatch(cell):
            raise ValueError(f"record {row + 1}, column {name!r}: neither a number nor a mark of a missing value")
        if cell is not None and abs(float(cell)) > 1e100:
            raise ValueError(f"record {row + 1}, column {name!r}: the number is infinite or too large")
    return [math.nan if cell is None else float(cell) for cell in cells]


def _cell(cell: object, marks: set[str], decimal: str) -> str | None:
    text = "" if cell is None else str(cell).strip()
    if text in marks:
        return None
    return text.replace(",", ".") if decimal == "," and _COMMA.fullmatch(text) else text


def _remove(records: Records, name: str, cells: list[str]) -> None:
    """Take cells of one column for missing values; numbers are compared as numbers."""
    if any(column["name"] == name for column in RULES["numeric"]):
        numbers = {float(cell) for cell in cells if _NUMBER.fullmatch(cell)}
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
    content = gzip.decompress(path.read_bytes()) if path.suffix.lower() == ".gz" else path.read_bytes()
    text = _decoded(content, site.get("encoding", ""))
    if not text.strip():
        raise ValueError(f"{path.name} is empty")
    separator = site.get("separator") or _separator(path, text)
    lines = _lines(text, separator)
    if site.get("header", TABLE["header"]):
        names, lines = [name.strip() for name in lines[0]], lines[1:]
    else:
        names = list(site.get("columns") or TABLE["columns"])
        if lines and len(lines[0]) == len(names) - 1:
            names = [name for name in names if name != RULES["target"]]
    for number, line in enumerate(lines, 1):
        if len(line) != len(names) and not (len(line) == len(names) + 1 and not line[-1].strip()):
            raise ValueError(f"{path.name}, record {number}: {len(line)} cells, but there are {len(names)} columns")
    cells = [cell.strip() for line in lines for cell in line]
    decimal = _decimal(path, cells, separator, site.get("decimal", ""))
    return [dict(zip(names, line, strict=False)) for line in lines], decimal


def _decoded(content: bytes, encoding: str) -> str:
    wide = ["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else []
    for name in [encoding] if encoding else ["utf-8-sig", *wide, "cp1252"]:
        try:
            return content.decode(name)
        except UnicodeError:
            continue
    raise ValueError("the file cannot be decoded as text: save it as UTF-8, or name its encoding")


def _lines(text: str, separator: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=None), delimiter=separator, skipinitialspace=True)
    return [cells for cells in reader if len(cells) > 1 or (cells and cells[0].strip())]


def _separator(path: Path, text: str) -> str:
    """Return the one with which all of the first lines have as many cells as the header, else most of them."""
    widths = {one: [len(line) for line in _lines(text, one)[:64]] for one in ",;\t|"}
    widths = {one: found for one, found in widths.items() if found and found[0] > 1}
    fit = [one for one, found in widths.items() if len(set(found)) == 1]
    fit = fit or [one for one, found in widths.items() if 2 * found.count(found[0]) > len(found)] or list(widths)
    if len(fit) != 1:
        raise ValueError(f"{path.name}: its separator is ambiguous; name it in {path.stem}.toml")
    return fit[0]


def _decimal(path: Path, cells: list[str], separator: str, given: str) -> str:
    """Return the decimal mark of a file's numbers."""
    with_comma = [cell for cell in cells if "," in cell]
    with_point = [cell for cell in cells if "." in cell and "," not in cell]
    thousands = any(_THOUSANDS.fullmatch(cell) for cell in with_comma)
    commas = any(_COMMA.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in with_comma)
    # 1.234 may be a thousand as well.
    dotted = separator != "," and given != "." and any(_THOUSANDS.fullmatch(cell) for cell in with_point)
    points = any(_POINT.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in with_point)
    if (dotted and not points) or (not given and ((commas and points) or (thousands and not commas))):
        raise ValueError(f"{path.name}: its decimal mark is ambiguous; name it in {path.stem}.toml")
    return given or ("," if commas else ".")


def _listed(cells: object) -> list[str]:
    return [str(cell) for cell in (cells if isinstance(cells, list) else [cells])]
