"""The command line of `florets reproduce`, read: an item, what of it is run, and the keys of all its cells."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.papers.cells import Cell, Place, folder_of
from florets.papers.item import Item, as_mapping, find_item, hold_to, item_names

_OWN_KEYS = ("scale", "n_jobs", "rows", "columns", "seeds", "stored")
_OF_NO_TABLE = ("results_dir", "workers", "quiet")
"""Keys of all cells that change no value of a table."""


@dataclass(frozen=True)
class Request:
    """The command line of `florets reproduce`; `typed` is the item as it stands there."""

    item: Item
    typed: str
    scale: str
    n_jobs: int = 1
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seeds: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    stored: str = ""

    @property
    def command(self) -> str:
        """The command that remakes this table, as it is typed."""
        keys = [f"{key}={value}" for key, value in self.given.items() if key not in (*_OF_NO_TABLE, "data_dir")]
        scale = [] if self.scale == "paper" else [f"scale={self.scale}"]
        return " ".join(["florets reproduce", self.typed, *scale, *keys])

    @property
    def asked(self) -> str:
        """The command with the rows, columns and seeds that were asked for."""
        chosen = [f"{kind}={','.join(names)}" for kind, names in self.chosen.items()]
        seeds = [] if self.seeds is None else [f"seeds={self.seeds}"]
        return " ".join([self.command, *chosen, *seeds])

    @property
    def stored_as(self) -> str:
        """Name of this table among those that are stored next to a page: of item, scale and keys given by hand."""
        keys = [f"{key}={value}" for key, value in sorted(self.given.items()) if key not in _OF_NO_TABLE]
        return re.sub(r"[^\w.=-]+", "_", "_".join([self.item.name, self.scale, *keys]))

    def folder(self, caller: Path) -> Path:
        """Return the folder of table and plots: one for each scale, and for each set of keys given by hand."""
        keys = {key: value for key, value in self.given.items() if key not in _OF_NO_TABLE}
        if "data_dir" in keys:
            # One folder, however it is spelled.
            keys["data_dir"] = str(folder_of(keys, "data_dir", caller))
        name = self.scale
        if keys:
            text = json.dumps(sorted(keys.items()))
            name += f"-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:8]}"
        return folder_of(self.given, "results_dir", caller) / "reproduce" / self.item.name / name

    def takes(self, cell: Cell) -> bool:
        """Return whether a cell is to be run."""
        return self.chooses(cell.place) and (self.seeds is None or cell.seed < self.seeds)

    def chooses(self, place: Place) -> bool:
        """Return whether a place is among the rows and columns that were asked for."""
        wanted = (("rows", place.row.name), ("columns", place.column.name))
        return all(name in self.chosen.get(kind, (name,)) for kind, name in wanted)


def read_request(words: Sequence[str]) -> Request:
    """Return the command line, read."""
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        found = f"{', '.join(names)} are {len(names)}" if names else "there is none"
        raise ConfigError([f"florets reproduce takes one item, and {found}. There are: {', '.join(item_names())}."])
    own, given = read_keys(words)
    scale = own.get("scale", "paper")
    item = find_item(names[0], scale)
    if "strategy" in given and any("strategy" in column.overrides for column in item.columns.values()):
        raise ConfigError([f"strategy={given['strategy']}: columns have their own; columns=<name>,... chooses some."])
    chosen: dict[str, Sequence[str]] = {}
    for kind, known in (("rows", item.rows), ("columns", item.columns)):
        if kind in own:
            chosen[kind] = own[kind].strip("[]").replace(" ", "").split(",")
            hold_to(kind, chosen[kind], known, f"{kind[:-1]} of {names[0]} at scale={scale}")
    seeds = _count("seeds", own["seeds"]) if "seeds" in own else None
    n_jobs = _count("n_jobs", own.get("n_jobs", "1"))
    return Request(item, names[0], scale, n_jobs, chosen, seeds, given, own.get("stored", ""))


def read_keys(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the command's own keys, and those of all cells."""
    problems: list[str] = []
    pairs = [tuple(word.split("=", 1)) for word in words if "=" in word]
    keys = [key for key, _ in pairs]
    problems += [f"{key}: is given twice; keep one." for key in dict.fromkeys(keys) if keys.count(key) > 1]
    problems += [f"{key}: there is no such key. Did you mean {key}s?" for key in ("row", "column") if key in keys]
    problems += [f"{key}=: names no folder." for key in ("data_dir", "results_dir") if (key, "") in pairs]
    if "seed" in keys:
        problems.append("seed: the seeds are the item's; seeds=<n> runs the first n alone.")
    given = as_mapping([f"{key}={value}" for key, value in pairs if key not in _OWN_KEYS], problems)
    if problems:
        raise ConfigError(problems)
    return {key: value for key, value in pairs if key in _OWN_KEYS}, given


def _count(key: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ConfigError([f"{key}={text}: must be an integer from 1."])
    return int(text)
