"""Declarations of a table: the run's for all sites, and a site's for its own files."""

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

from florets.task.keys import from_plain
from florets.task.settings import TableConfig

NODE_FILE = "node.toml"
"""File of a node's data folder that holds its node config, and how its tables differ from the run's declaration."""

SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".csv.gz", ".tsv.gz")
"""Ends of the names of files that are tables."""

_OTHER_TABLES = (".xlsx", ".xls", ".xlsm", ".ods", ".parquet", ".feather", ".sav", ".dta", ".sas7bdat", ".rds")
"""Ends of the names of files that are tables of forms which are not read."""

MISSING = (
    *("", "?", ".", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "NaT", "<NA>", "\\N", "#N/A", "#NA"),
    *("#NULL!", "#VALUE!", "#DIV/0!", "#REF!", "#NAME?", "#NUM!", "#NV"),
)
"""Cells that stand for a missing value in every table; those with # are a spreadsheet's errors."""


@dataclass(frozen=True)
class Declaration(TableConfig):
    """What a run says of the tables of all its sites; `min_count` is what the site itself says."""

    classes: dict[str, list[str]] = field(default_factory=dict)
    min_count: int = 5

    def __post_init__(self) -> None:
        single = {"target": [self.target], "group": [self.group], "owner": [self.owner]}
        roles = {**single, "id": self.id, "drop": self.drop}
        for name in filter(None, chain(*roles.values())):
            of = [role for role, names in roles.items() if name in names]
            # A person's id may also say which records belong together.
            if len(of) > 1 and of != ["group", "id"]:
                raise ValueError(f"task.table: column {name!r} is named as {' and as '.join(of)}; keep one of them.")
        cells = [cell for of in self.classes.values() for cell in of]
        if self.classes and (len(self.classes) < 2 or len(set(cells)) < len(cells) or not all(self.classes.values())):
            raise ValueError("task.table.classes: name two classes or more, each with a cell, and no cell twice.")
        if self.regression and self.classes:
            raise ValueError("task.table.regression=true: a regression has no task.table.classes; leave out one.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Declaration":
        """Return what plain values (as JSON has them) declare; raise ValueError for unknown keys or wrong types."""
        return from_plain(cls, values, "task.table.")

    @property
    def named(self) -> dict[str, str]:
        """The columns that some sites at least must have, with the key that names each."""
        keys = ("drop", "id", "categorical", "columns")
        return {name: key for key in keys for name in getattr(self, key)}

    def inputs_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of a table's columns that may be inputs, in their order."""
        apart = {self.target, self.group, self.owner, *self.id, *self.drop}
        wanted = set(self.columns or names)
        return tuple(name for name in names if name not in apart and name in wanted)


@dataclass(frozen=True)
class Site:
    """How one site's files differ: its ``node.toml``; what is empty is detected."""

    rename: dict[str, str] = field(default_factory=dict)
    """Name in the file to the name that all sites use, which all other keys go by."""
    scale: dict[str, float] = field(default_factory=dict)
    """Factor of a column, for another unit."""
    missing: list[str] = field(default_factory=list)
    missing_in: dict[str, list[str]] = field(default_factory=dict)
    """Cells of single columns that stand for a missing value: a cholesterol of 0."""
    drop: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    """Columns whose numbers are codes of categories, in addition to those that the run names."""
    separator: str = ""
    decimal: str = ""
    encoding: str = ""
    header: bool | None = None
    columns: list[str] = field(default_factory=list)
    """Names of the file's columns where it has no header."""
    min_count: int = 5
    """Fewest records of a category, or values of a column, of which more than a count is sent."""

    def __post_init__(self) -> None:
        if len(self.separator) > 1 or self.separator in ('"', "\n", "\r"):
            raise ValueError('separator: must be one character, such as ";" or "\\t".')
        if self.decimal not in ("", ".", ","):
            raise ValueError('decimal: must be "." or ",".')
        if self.min_count < 1:
            raise ValueError("min_count: must be at least 1.")
        if not all(math.isfinite(factor) and factor for factor in self.scale.values()):
            raise ValueError("scale: every factor must be a number other than 0.")


SITE_KEYS = tuple(entry.name for entry in fields(Site))
"""Keys of a node's file that concern its tables; the others are its node config."""


def is_table(path: Path) -> bool:
    """Return whether a file is a table by the end of its name; hidden files and a README.txt are not."""
    name = path.name.lower()
    return name.endswith(SUFFIXES) and not name.startswith((".", "readme."))


def name_of(table: Path) -> str:
    """Return a table's name without the ending that says what it is."""
    ending = max((suffix for suffix in SUFFIXES if table.name.lower().endswith(suffix)), key=len, default="")
    return table.name.removesuffix(table.name[len(table.name) - len(ending) :]) or table.name


def client_folders(root: Path) -> list[Path]:
    """Return the folders in a folder, or its tables where there are none: each is a client's data. No hidden ones."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return folders or sorted(path for path in root.iterdir() if is_table(path))


def unread_files(root: Path) -> dict[str, str]:
    """Return the tables in the folder of all clients that are not read, by their form or place, with the remedy."""
    read = set(client_folders(root))
    found = {}
    for path in sorted(set(root.iterdir()) - read):
        if path.is_file() and path.suffix.lower() in _OTHER_TABLES:
            found[path.name] = "save it as .csv"
        elif path.is_file() and is_table(path):
            found[path.name] = "move it into a folder of its own"
    return found


def site_file(data: Path) -> Path:
    """Return the path of a node's file: in its data folder or, where a single file is its data, next to that."""
    return data / NODE_FILE if data.is_dir() else data.with_name(f"{name_of(data)}.toml")


def site_of(table: Path) -> Site:
    """Return what a node's file says of one table: the one of its folder or, in a folder of many tables, its own."""
    return read_site(table.parent if (table.parent / NODE_FILE).is_file() else table)


def read_site(data: Path) -> Site:
    """Return what the node's file says of its tables; raise ValueError where it is no TOML or holds other types."""
    file = site_file(data)
    values = read_toml(file)
    for name, value in values.items():
        near = difflib.get_close_matches(name, SITE_KEYS, n=1, cutoff=0.8)
        # The settings of a node's config are no lists or tables.
        if name not in SITE_KEYS and (near or isinstance(value, dict | list)):
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"{file.name}: {name}: there is no such key.{hint} Of a table: {', '.join(SITE_KEYS)}.")
    # In quotes, as the other settings of a node's file that are true or false may stand.
    if values.get("header") in ("true", "false"):
        values["header"] = values["header"] == "true"
    try:
        return from_plain(Site, {name: values[name] for name in SITE_KEYS if name in values}, "")
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error


def read_toml(file: Path) -> dict[str, Any]:
    """Return the values in a node's file; none where there is no such file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}.") from error
