"""An item's values without what they say of rows, columns and measures that it does not have."""

from collections.abc import Mapping
from typing import Any

from florets.papers.measures import read_measure


def without_others(row: Mapping[str, Any], columns: Any) -> dict[str, Any]:
    """Return a row without what it says of columns that are not there."""
    names = set(map(str, columns or ()))
    left_out = [name for name in row.get("leave_out", []) if str(name) in names]
    own = {name: keys for name, keys in row.get("for_columns", {}).items() if str(name) in names}
    return {**row, "leave_out": left_out, "for_columns": own}


def of_these_lines(values: dict[str, Any], measures: Any) -> dict[str, Any]:
    """Return an item's values without what is said of rows, columns and measures that it does not have."""
    rows, columns = ({str(name) for name in values[kind] or ()} for kind in ("rows", "columns"))
    found = dict(values)
    found["measures"] = [name for name in values["measures"] if read_measure(str(name))[1] in (None, *columns)]
    found["paper"] = [
        block | {"values": figures, "why": _of_places(block.get("why", {}), figures)}
        for block in values.get("paper", [])
        if block["measure"] in measures and (figures := _figures(block["values"], rows, columns))
    ]
    if "small" in values:
        small = found["small"] = dict(values["small"])
        for key, names in (("rows", rows), ("columns", columns)):
            if key in small:
                small[key] = [name for name in small[key] if str(name) in names]
        small["for_rows"] = {row: texts for row, texts in small.get("for_rows", {}).items() if str(row) in rows}
    return found


def _figures(values: Mapping[Any, Any], rows: set[str], columns: set[str]) -> dict[Any, dict[Any, Any]]:
    kept = {
        row: {column: figure for column, figure in of_row.items() if str(column) in columns}
        for row, of_row in values.items()
        if str(row) in rows
    }
    return {row: figures for row, figures in kept.items() if figures}


def _of_places(why: Mapping[Any, Any], figures: Mapping[Any, Mapping[Any, Any]]) -> dict[Any, Any]:
    places = [(row, column) for row, of_row in figures.items() for column in of_row]
    named = {name for row, column in places for name in (row, column, f"{row}.{column}")}
    return {key: reasons for key, reasons in why.items() if key in named}
