"""Files of items: what a YAML file describes, its faults, and what it takes from another item's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from florets.conf.compose import CONFIG_DIR
from florets.conf.problems import ConfigError, did_you_mean
from florets.server_app.reproduce.item_reader import ItemReader
from florets.server_app.reproduce.items import Item
from florets.server_app.reproduce.measures import read_measure
from florets.server_app.reproduce.yaml_file import read_yaml

FOLDER = CONFIG_DIR / "reproduce"
SCALES = ("paper", "small")


def item_names() -> list[str]:
    """Return the names of all items, sorted."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def find_item(name: str, scale: str = "paper") -> Item:
    """Return the item of a name at one scale; a name that ends in .yaml is a file of one's own.

    Raises
    ------
    ConfigError
        If there is none, or its file is faulty.
    """
    if scale not in SCALES:
        raise ConfigError([f"scale={scale}: must be {' or '.join(SCALES)}."])
    return read_item(_path_of(name), Path(name).stem if name.endswith(".yaml") else name, scale)


def read_item(path: Path, name: str, scale: str = "paper") -> Item:
    """Return the item that a file describes.

    Raises
    ------
    ConfigError
        With every problem of the file.
    """
    values = _with_inherited(path)
    reader = ItemReader(str(path))
    item = reader.item(values, name)
    smaller = reader.smaller(item, values["small"]) if item is not None and "small" in values else None
    if reader.problems or item is None:
        raise ConfigError(list(dict.fromkeys(reader.problems)))
    if scale == "paper":
        return item
    if smaller is None:
        raise ConfigError([f"scale=small: {name} has one scale alone; leave it out."])
    return smaller


def _path_of(name: str, folder: Path = Path()) -> Path:
    """Return an item's file; one of one's own is meant from `folder`."""
    if name.endswith(".yaml"):
        return folder / Path(name).expanduser()
    known = item_names()
    if name not in known:
        hint = did_you_mean(name, known) or f" There are: {', '.join(known)}."
        raise ConfigError(
            [f"{name}: there is no such item.{hint} florets reproduce --list tells of all; or name a .yaml file."]
        )
    return FOLDER / f"{name}.yaml"


def _read(path: Path) -> Any:
    try:
        return read_yaml(path)
    except FileNotFoundError as error:
        raise ConfigError(
            [f"{path}: there is no such file; florets reproduce --list names the items that come with it."]
        ) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        told = error.strerror if isinstance(error, OSError) else None
        reason = " ".join((told or str(error)).split()) or type(error).__name__
        raise ConfigError([f"{path}: cannot be read ({reason})."]) from error


def _with_inherited(path: Path, below: tuple[Path, ...] = ()) -> Any:
    """Return what a file holds, with the keys that it lacks from the item that its `extends` names.

    A list of names as its `rows` or `columns` chooses among those of that item. What the item says of lines that are
    not here is left out; the reasons in the file's `why` are added to its own.

    Parameters
    ----------
    below
        The files that have led to this one.
    """
    values = _read(path)
    if not isinstance(values, Mapping) or "extends" not in values:
        return values
    here, name = path.resolve(), str(values["extends"])
    if here in below:
        raise ConfigError([f"{path}: extends: {name}: leads back to this file; name another item."])
    try:
        base_path = _path_of(name, path.parent)
        base = _with_inherited(base_path, (*below, here))
        reader = ItemReader(str(base_path))
        reader.item(base, name)
        if reader.problems:
            raise ConfigError(reader.problems)
    except ConfigError as error:
        raise ConfigError([f"{path}: extends: {problem}" for problem in error.problems]) from error
    chosen, problems = {}, list[str]()
    for kind in ("rows", "columns"):
        lines = {str(line): of_line for line, of_line in base[kind].items()}
        names = values.get(kind, list(lines))
        if isinstance(names, list):
            if not names or len(set(map(str, names))) < len(names):
                problems.append(f"{path}: {kind}: {names}: must name one at least, and none twice.")
            problems += [
                f"{path}: {kind}: {line}: {name} has no such {kind[:-1]}.{did_you_mean(line, lines)}"
                for line in map(str, names)
                if line not in lines
            ]
            chosen[kind] = {line: lines[line] for line in map(str, names) if line in lines}
        else:
            chosen[kind] = names
    if "rows" not in values or isinstance(values["rows"], list):
        chosen["rows"] = {row: _without_others(line, chosen["columns"]) for row, line in chosen["rows"].items()}
    own = values.get("why")
    if isinstance(own, Mapping):
        rows, columns = ({*map(str, base[kind]), *map(str, chosen[kind] or ())} for kind in ("rows", "columns"))
        places = {f"{row}.{column}" for row in rows for column in columns}
        problems += [
            f"{path}: why: {key}: there is no such row, column or <row>.<column>."
            for key in map(str, own)
            if key not in rows | columns | places
        ]
    if problems:
        raise ConfigError(problems)
    merged = _of_these_lines(base | chosen, values.get("measures", base["measures"])) | dict(values) | chosen
    if isinstance(own, Mapping):
        merged["why"] = {**base.get("why", {}), **own}
    return merged


def _without_others(row: Mapping[str, Any], columns: Any) -> dict[str, Any]:
    """Return a row without what it says of columns that are not there."""
    names = set(map(str, columns or ()))
    left_out = [name for name in row.get("leave_out", []) if str(name) in names]
    own = {name: keys for name, keys in row.get("for_columns", {}).items() if str(name) in names}
    return {**row, "leave_out": left_out, "for_columns": own}


def _of_these_lines(values: dict[str, Any], measures: Any) -> dict[str, Any]:
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
