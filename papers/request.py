"""The command line of `florets reproduce`, read: an item, what of it is run, and the keys of all its cells."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from florets.conf.problems import ConfigError, did_you_mean
from florets.papers.cells import Cell, Place, folder_of
from florets.papers.item import Item
from florets.papers.items import as_mapping, find_item, item_names

_OWN_KEYS = ("scale", "n_jobs", "rows", "columns", "seeds", "stored")
_MISTYPED = ("row", "column")
"""Keys that are none, and would be looked for among those of runs."""
_OF_NO_TABLE = ("results_dir", "workers")
"""Keys of all cells that change no value of a table."""


@dataclass(frozen=True)
class Request:
    """The command line of `florets reproduce`, read."""

    item: Item
    scale: str
    n_jobs: int
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seeds: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    stored: str = ""
    typed: str = ""

    @property
    def command(self) -> str:
        """The command that remakes this table, as it is typed."""
        keys = [f"{key}={value}" for key, value in self.given.items() if key not in (*_OF_NO_TABLE, "data_dir")]
        scale = [] if self.scale == "paper" else [f"scale={self.scale}"]
        return " ".join(["florets reproduce", self.typed or self.item.name, *scale, *keys])

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
        results = folder_of(self.given, "results_dir", caller)
        keys = {key: value for key, value in self.given.items() if key not in _OF_NO_TABLE}
        if "data_dir" in keys:
            # One folder, however it is spelled.
            keys["data_dir"] = str(folder_of(keys, "data_dir", caller))
        name = self.scale
        if keys:
            text = json.dumps(sorted(keys.items()))
            name += f"-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:8]}"
        return results / "reproduce" / self.item.name / name

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
    problems: list[str] = []
    own, given = read_keys(words, problems)
    if "seed" in given:
        problems.append(f"seed={given['seed']}: the seeds are the item's; seeds=<n> runs the first n alone.")
    if problems:
        raise ConfigError(problems)
    scale = own.get("scale", "paper")
    item = find_item(names[0], scale)
    item = replace(item, references=tuple(entry.beside(given) for entry in item.references))
    if by_hand := [f"{key}={value}" for key, value in given.items() if key in item.cut_keys]:
        item = replace(item, cut=f"{item.cut} (but {', '.join(by_hand)} by hand)")
    if "strategy" in given and any("strategy" in column.overrides for column in item.columns):
        problems.append(f"strategy={given['strategy']}: columns have their own; columns=<name>,... chooses some.")
    chosen: dict[str, Sequence[str]] = {
        kind: own[kind].strip("[]").replace(" ", "").split(",") for kind in ("rows", "columns") if kind in own
    }
    problems += _unknown_lines(item, chosen, scale, names[0])
    numbers = {key: _count(key, own[key], problems) for key in ("n_jobs", "seeds") if key in own}
    most = max(item.seeds, *(row.seeds or 0 for row in item.rows))
    if numbers.get("seeds", 0) > most:
        problems.append(
            f"seeds={own['seeds']}: {item.name} has {most} at this scale; leave it out to run all of them."
        )
    if problems:
        raise ConfigError(problems)
    n_jobs, seeds = numbers.get("n_jobs", 1), numbers.get("seeds")
    return Request(item, scale, n_jobs, chosen, seeds, given, own.get("stored", ""), names[0])


def _unknown_lines(item: Item, chosen: Mapping[str, Sequence[str]], scale: str, typed: str) -> Iterator[str]:
    """Yield what is wrong with each row and column that was chosen and is not there."""
    whole = find_item(typed) if chosen and scale != "paper" else item
    for kind, names in chosen.items():
        lines, all_lines = ((i.rows if kind == "rows" else i.columns) for i in (item, whole))
        known = [line.name for line in lines]
        for name in names:
            if name not in known and any(line.name == name for line in all_lines):
                yield f"{kind}={name}: scale={scale} leaves it out; leave scale={scale} out to have it."
            elif name not in known:
                hint = did_you_mean(name, known)
                yield f"{kind}={name}: {item.name} has no such {kind[:-1]}.{hint} There are: {', '.join(known)}."


def read_keys(words: Sequence[str], problems: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the command's own keys, and those of all cells."""
    pairs = [tuple(word.split("=", 1)) for word in words if "=" in word]
    keys = [key for key, _ in pairs]
    problems += [f"{key}: is given twice; keep one." for key in dict.fromkeys(keys) if keys.count(key) > 1]
    for key, value in pairs:
        if key in ("data_dir", "results_dir") and not value:
            problems.append(f"{key}=: names no folder.")
        if key in _MISTYPED:
            problems.append(f"{key}={value}: there is no such key. Did you mean {key}s?")
    given = [f"{key}={value}" for key, value in pairs if key not in (*_OWN_KEYS, *_MISTYPED)]
    return {key: value for key, value in pairs if key in _OWN_KEYS}, as_mapping(given, problems)


def _count(key: str, text: str, problems: list[str]) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        problems.append(f"{key}={text}: must be an integer from 1.")
        return 1
    return int(text)
