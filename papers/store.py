"""Cells of the tables of a page, which is made of them where no folder of a run is."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from florets.conf.problems import ConfigError
from florets.papers.cells import Place, Progress, State
from florets.papers.measures import Values
from florets.reports.tables import write_csv

CELLS = "cells.csv"
"""In the folder that is named as the page."""

_HEAD = ("table", "row", "column", "seed", "settings", "state", "note")
_WORDS = ("verdict", "code")
"""Values that are no numbers."""
_OF_DRIFT = ("rounds_of_ari_1",)
"""Lists as long as the run, which are of use only where the data change."""
_STATES: tuple[State, ...] = ("finished", "failed", "stopped")


class Store:
    """The cells of one table, an item at one scale, by row, column and seed, with the hash of their settings.

    Those that were not run are not in it. Lines of other tables in the file stay as they are.
    """

    def __init__(self, path: Path, table: str) -> None:
        self.path, self._table, at = path, table, ""
        self._others: list[dict[str, str]] = []
        self._runs: dict[tuple[str, str, int], tuple[str, Progress]] = {}
        if not path.exists():
            return
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                if tuple(reader.fieldnames or ())[: len(_HEAD)] != _HEAD:
                    raise ValueError(f"its first line must begin with {','.join(_HEAD)}")
                for line in reader:
                    at = f"line {reader.line_num}: "
                    if line["table"] != table:
                        self._others.append(line)
                        continue
                    key = line["row"], line["column"], int(line["seed"])
                    self._runs[key] = line["settings"], _read(line)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                [f"{path}: cannot be read as stored cells ({at}{reason}); restore or remove it."]
            ) from None

    def _found(self, place: Place, seed: int) -> Progress | None:
        """Return what is stored of a run; nothing if it was stored with other settings."""
        settings, found = self._runs.get((*place.key, seed), ("", None))
        return found if settings == place.settings else None

    def put(self, place: Place, seed: int, found: Progress) -> None:
        """Store what a results folder says of a cell; a finished one is replaced by nothing less."""
        if found.state == "not run" or (found.state != "finished" and self.get(place, seed).state == "finished"):
            return
        # A stored page is for other machines: the note's first line, without paths.
        note = re.sub(r"(?:[A-Za-z]:)?[\\/]\S+[\\/]", "", next(iter(found.note.splitlines()), ""))
        self._runs[*place.key, seed] = place.settings, replace(found, note=note)

    def get(self, place: Place, seed: int) -> Progress:
        """Return how far a cell is; one that was stored with other settings is not run."""
        return (self._found(place, seed) if place.chosen is not None else None) or Progress("not run")

    def finished(self) -> dict[tuple[str, int], Progress]:
        """Return the finished cells by the hash of their settings and their seed."""
        runs = ((settings, seed, found) for (_, _, seed), (settings, found) in self._runs.items())
        return {(settings, seed): found for settings, seed, found in runs if found.state == "finished"}

    def write(self, places: Sequence[Place]) -> None:
        """Write the cells of these places, then finished ones that none of them asks for now.

        Those count again once the item asks for their settings; a run in their place replaces them.
        """
        asked = [(*place.key, seed) for place in places for seed in range(place.seeds) if self._found(place, seed)]
        drifts = any(place.config is not None and place.config.task.drift.rounds for place in places)
        left_out = ("warnings", *(() if drifts else _OF_DRIFT))
        rows: list[dict[str, Any]] = list(self._others)
        for key in dict.fromkeys([*asked, *self._runs]):
            settings, found = self._runs[key]
            if key not in asked and found.state != "finished":
                continue
            values = {name: value for name, value in found.values.items() if value is not None}
            row = dict(zip(_HEAD, (self._table, *key, settings, found.state, found.note), strict=True))
            rows.append(row | {name: _written(value) for name, value in values.items() if name not in left_out})
        if not rows:
            self.path.unlink(missing_ok=True)
            return
        # In one order, whichever table is written last.
        rows.sort(key=lambda row: str(row["table"]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        names = {name for row in rows for name, value in row.items() if value != ""}
        write_csv(self.path, [*_HEAD, *sorted(names.difference(_HEAD))], rows)


def _read(line: Mapping[str, str]) -> Progress:
    if line["state"] not in _STATES:
        raise ValueError(f"state {line['state']} is none of {', '.join(_STATES)}")
    state = _STATES[_STATES.index(line["state"])]
    if state != "finished":
        return Progress(state, note=line["note"])
    texts = {name: text for name, text in line.items() if name not in _HEAD and text}
    values = {name: text if name in _WORDS else json.loads(text) for name, text in texts.items()}
    return Progress(state, cast(Values, values), line["note"])


def stored_cells(folder: Path) -> dict[tuple[str, int], Progress]:
    """Return the finished cells of all tables of a page's folder, by the hash of their settings and their seed.

    Two items that have a run in common have it under one key. Cells of data that are named by their folder are left
    out: the hash does not know it.
    """
    if not (path := folder / CELLS).is_file():
        return {}
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        tables = dict.fromkeys(line.get("table", "") for line in csv.DictReader(file))
    found: dict[tuple[str, int], Progress] = {}
    for table in tables:
        if "data_dir=" not in table:
            found |= Store(path, table).finished()
    return found


def _written(value: Any) -> str:
    """Return a value as the file has it: six digits are more than any table shows."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    shown = float(f"{value:.6g}") if value % 1 else value
    # Read and written again it must be the same text.
    return json.dumps(shown if shown % 1 else int(shown))
