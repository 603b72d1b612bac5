"""Files of items: what a YAML file describes, its faults, and what it takes from another item's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from florets.conf.presets import CONFIG_DIR
from florets.conf.problems import ConfigError, did_you_mean
from florets.server_app.reproduce.item_reader import ItemReader
from florets.server_app.reproduce.items import Item
from florets.server_app.reproduce.narrowed import of_these_lines, without_others
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
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
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
        base = _checked_base(_path_of(name, path.parent), name, (*below, here))
    except ConfigError as error:
        raise ConfigError([f"{path}: extends: {problem}" for problem in error.problems]) from error
    problems: list[str] = []
    chosen = {kind: _lines(kind, values, base, problems) for kind in ("rows", "columns")}
    if "rows" not in values or isinstance(values["rows"], list):
        chosen["rows"] = {row: without_others(line, chosen["columns"]) for row, line in chosen["rows"].items()}
    own = values.get("why")
    if isinstance(own, Mapping):
        problems += _unknown_reasons(own, base, chosen)
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    merged = of_these_lines(base | chosen, values.get("measures", base["measures"])) | dict(values) | chosen
    if isinstance(own, Mapping):
        merged["why"] = {**base.get("why", {}), **own}
    return merged


def _checked_base(path: Path, name: str, below: tuple[Path, ...]) -> dict[str, Any]:
    """Return what another item's file holds, without a fault."""
    values = _with_inherited(path, below)
    reader = ItemReader(str(path))
    reader.item(values, name)
    if reader.problems:
        raise ConfigError(reader.problems)
    return dict(values)


def _lines(kind: str, values: Mapping[str, Any], base: Mapping[str, Any], problems: list[str]) -> Any:
    """Return a file's rows or columns: its own, or those that it takes from another item's."""
    lines = {str(line): of_line for line, of_line in base[kind].items()}
    names = values.get(kind, list(lines))
    if not isinstance(names, list):
        return names
    if not names or len(set(map(str, names))) < len(names):
        problems.append(f"{kind}: {names}: must name one at least, and none twice.")
    problems += [
        f"{kind}: {line}: {values['extends']} has no such {kind[:-1]}.{did_you_mean(line, lines)}"
        for line in map(str, names)
        if line not in lines
    ]
    return {line: lines[line] for line in map(str, names) if line in lines}


def _unknown_reasons(why: Mapping[Any, Any], *items: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with reasons of places that none of the items has."""
    rows, columns = ({str(line) for item in items for line in item[kind] or ()} for kind in ("rows", "columns"))
    known = rows | columns | {f"{row}.{column}" for row in rows for column in columns}
    return [
        f"why: {key}: there is no such row, column or <row>.<column>." for key in map(str, why) if key not in known
    ]
