"""Cells of the tables of a page, which is made of them where no folder of a run is."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from florets.conf.problems import ConfigError
from florets.conf.saved import reading
from florets.papers.cells import Place, Progress, State
from florets.reports.tables import write_csv

CELLS = "cells.csv"
"""In the folder that is named as the page."""

_HEAD = ("table", "row", "column", "seed", "settings", "state", "note")
_OF_DRIFT = "rounds_of_ari_1"
"""A list as long as the run, which is of use only where the data change."""


class Store:
    """The cells of one table, an item at one scale, by row, column and seed, with the hash of their settings.

    Those that were not run are not in it. Lines of other tables in the file stay as they are.
    """

    def __init__(self, path: Path, table: str) -> None:
        self.path, self._table = path, table
        self._others: list[dict[str, str]] = []
        self._runs: dict[tuple[str, str, int], tuple[str, Progress]] = {}
        for line in _lines(path):
            if line["table"] != table:
                self._others.append(line)
                continue
            with reading(path, "restore or remove it"):
                self._runs[line["row"], line["column"], int(line["seed"])] = line["settings"], _read(line)

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

    def write(self, places: Sequence[Place]) -> None:
        """Write the cells of these places, then finished ones that none of them asks for now.

        Those count again once the item asks for their settings; a run in their place replaces them.
        """
        asked = [(*place.key, seed) for place in places for seed in range(place.seeds) if self._found(place, seed)]
        drifts = any(place.config is not None and place.config.task.drift.rounds for place in places)
        rows: list[dict[str, Any]] = list(self._others)
        for key in dict.fromkeys([*asked, *self._runs]):
            settings, found = self._runs[key]
            if key not in asked and found.state != "finished":
                continue
            row = dict(zip(_HEAD, (self._table, *key, settings, found.state, found.note), strict=True))
            values = {name: value for name, value in found.values.items() if drifts or name != _OF_DRIFT}
            rows.append(row | {name: _written(value) for name, value in values.items() if value is not None})
        if not rows:
            self.path.unlink(missing_ok=True)
            return
        # In one order, whichever table is written last.
        rows.sort(key=lambda row: str(row["table"]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        names = {name for row in rows for name, value in row.items() if value != ""}
        write_csv(self.path, [*_HEAD, *sorted(names.difference(_HEAD))], rows)


def _lines(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = list(reader)
    if tuple(reader.fieldnames or ())[: len(_HEAD)] != _HEAD:
        raise ConfigError([f"{path}: its first line must begin with {','.join(_HEAD)}; restore or remove it."])
    return lines


def _read(line: Mapping[str, str]) -> Progress:
    state = cast(State, line["state"])
    if state != "finished":
        return Progress(state, note=line["note"])
    values = {name: json.loads(text) for name, text in line.items() if name not in _HEAD and text}
    return Progress(state, values, line["note"])


def stored_cells(folder: Path) -> dict[tuple[str, int], Progress]:
    """Return the finished cells of all tables of a page's folder, by the hash of their settings and their seed.

    Two items that have a run in common have it under one key. Cells of data that are named by their folder are left
    out: the hash does not know it.
    """
    lines = [
        line for line in _lines(folder / CELLS) if line["state"] == "finished" and "data_dir=" not in line["table"]
    ]
    with reading(folder / CELLS, "restore or remove it"):
        return {(line["settings"], int(line["seed"])): _read(line) for line in lines}


def _written(value: Any) -> str:
    """Return a value as the file has it: six digits are more than any table shows."""
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    shown = float(f"{value:.6g}") if value % 1 else value
    # Read and written again it must be the same text.
    return json.dumps(shown if shown % 1 else int(shown))
