"""Cells of an item in one small file: tables are made of it where the folders of the runs are not."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from florets.conf.problems import ConfigError
from florets.papers.cells import Place, Progress, State
from florets.reports.folder import whole_file
from florets.reports.quantities import QUANTITIES, known_quantities
from florets.reports.summary import RoundLine

_HEAD = ("row", "column", "seed", "settings", "state", "note")
_WORDS = ("verdict", "code")
"""Values that are no numbers."""
_LEFT_OUT = ("warnings",)
_OF_DRIFT = ("rounds_of_ari_1",)
"""Lists as long as the run, which are of use only where the data change."""
_STATES: tuple[State, ...] = ("finished", "failed", "stopped")


class Store:
    """The cells of one item at one scale, as its file has them; those that were not run are not in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cells: dict[tuple[str, str, int], tuple[str, Progress]] = {}
        if not path.exists():
            return
        at = ""
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                if tuple(reader.fieldnames or ())[: len(_HEAD)] != _HEAD:
                    raise ValueError(f"its first line must begin with {','.join(_HEAD)}")
                for line in reader:
                    at = f"line {reader.line_num}: "
                    if line["state"] not in _STATES:
                        raise ValueError(f"state {line['state']} is none of {', '.join(_STATES)}")
                    state: State = _STATES[_STATES.index(line["state"])]
                    values = {name: _read(name, text) for name, text in line.items() if name not in _HEAD and text}
                    known = Progress(state, values if state == "finished" else {}, line["note"])
                    self._cells[line["row"], line["column"], int(line["seed"])] = line["settings"], known
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                [f"{path}: cannot be read as stored cells ({at}{reason}); restore or remove it."]
            ) from error

    def put(self, place: Place, seed: int, found: Progress) -> None:
        """Store what a results folder says of a cell; a finished one is replaced by nothing less."""
        if found.state == "not run" or (found.state != "finished" and self.get(place, seed).state == "finished"):
            return
        shown = replace(found, note=_public(found.note))
        self._cells[place.row.name, place.column.name, seed] = place.settings, shown

    def get(self, place: Place, seed: int) -> Progress:
        """Return how far a cell is; one that was stored with other settings is not run."""
        settings, found = self._cells.get((place.row.name, place.column.name, seed), ("", Progress("not run")))
        return found if settings == place.settings else Progress("not run")

    def finished(self) -> Iterator[tuple[str, int, Progress]]:
        """Yield of each finished cell the hash of its settings, its seed, and what it came to."""
        for (_, _, seed), (settings, found) in self._cells.items():
            if found.state == "finished":
                yield settings, seed, found

    def write(self, places: Sequence[Place]) -> None:
        """Write the file: the cells of these places, then finished ones that none of them asks for now.

        Those count again once the item asks for their settings; a run in their place replaces them.
        """
        asked = {
            (place.row.name, place.column.name, seed): (place.settings, found)
            for place in places
            for seed in range(place.seeds)
            if (found := self.get(place, seed)).state != "not run"
        }
        others = {key: cell for key, cell in self._cells.items() if key not in asked and cell[1].state == "finished"}
        kept = asked | others
        if not kept:
            self.path.unlink(missing_ok=True)
            return
        known = {
            name: None for _, found in kept.values() for name, value in found.values.items() if value is not None
        }
        drifts = any(place.config is not None and place.config.task.drift.rounds for place in places)
        left_out = _LEFT_OUT if drifts else (*_LEFT_OUT, *_OF_DRIFT)
        names = [name for name in known if name not in left_out]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self.path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*_HEAD, *names])
            for (row, column, seed), (settings, found) in kept.items():
                values = [_written(found.values.get(name)) for name in names]
                writer.writerow([row, column, seed, settings, found.state, found.note, *values])


def stored_cells(folder: Path) -> dict[tuple[str, int], Progress]:
    """Return the finished cells of all items in a page's folder, by the hash of their settings and their seed.

    Two items that have a run in common have it under one key. Cells of data that are named by their folder are left
    out: the hash does not know it.
    """
    head = ",".join(_HEAD)
    found: dict[tuple[str, int], Progress] = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", errors="replace") as file:
            # The folder holds curves and sweeps too.
            is_cells = file.readline().startswith(head)
        if is_cells and "data_dir=" not in path.name:
            found |= {(settings, seed): progress for settings, seed, progress in Store(path).finished()}
    return found


def _public(note: str) -> str:
    """Return a note's first line without paths: a stored page is for other machines."""
    return re.sub(r"(?:[A-Za-z]:)?[\\/]\S+[\\/]", "", next(iter(note.splitlines()), ""))


def _written(value: Any) -> str:
    """Return a value as the file has it: six digits are more than any table shows."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    shown = float(f"{value:.6g}") if value % 1 else value
    # Read and written again it must be the same text.
    return json.dumps(shown if shown % 1 else int(shown))


def _read(name: str, text: str) -> Any:
    return text if name in _WORDS else json.loads(text)


_CURVES_HEAD = ("row", "column", "seed", "settings", "quantity", "rounds", "values")
_FIRST, _MOST = 20, 80
"""Rounds of a curve that are kept: those in which most happens, and all in all."""

LinesOf = Callable[[Place, int], Sequence[RoundLine]]
"""Returns the rounds of a run, given its place and seed; none where they are not there."""


class CurveStore:
    """What the plot of one item at one scale draws of its runs, as a file has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: dict[tuple[str, str, int], tuple[str, dict[str, dict[int, float]]]] = {}
        if not path.exists():
            return
        try:
            with path.open(encoding="utf-8", newline="") as file:
                for line in csv.DictReader(file):
                    key = line["row"], line["column"], int(line["seed"])
                    rounds = [int(text) for text in line["rounds"].split()]
                    values = [float(text) for text in line["values"].split()]
                    _, curves = self._runs.setdefault(key, (line["settings"], {}))
                    curves[line["quantity"]] = dict(zip(rounds, values, strict=True))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                [f"{path}: cannot be read as stored curves ({reason}); restore or remove it."]
            ) from error

    def put(self, place: Place, seed: int, lines: Sequence[RoundLine]) -> None:
        """Store the curves of a run; without lines what is stored stays."""
        if not lines:
            return
        curves = {key: _thinned({line["round"]: line[key] for line in lines}) for key in known_quantities([lines])}
        self._runs[place.row.name, place.column.name, seed] = place.settings, curves

    def get(self, place: Place, seed: int) -> list[RoundLine]:
        """Return the rounds that are stored of a run, none if it was stored with other settings."""
        settings, curves = self._runs.get((place.row.name, place.column.name, seed), ("", {}))
        if settings != place.settings:
            return []
        rounds = sorted({number for values in curves.values() for number in values})
        return [{"round": number} | {key: curves.get(key, {}).get(number) for key in QUANTITIES} for number in rounds]

    def write(self, places: Sequence[Place]) -> None:
        """Write the file: the runs of these places, then those that none of them asks for now."""
        asked = {
            (place.row.name, place.column.name, seed): self._runs[place.row.name, place.column.name, seed]
            for place in places
            for seed in range(place.seeds)
            if self.get(place, seed)
        }
        kept = asked | {key: run for key, run in self._runs.items() if key not in asked}
        if not kept:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self.path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_CURVES_HEAD)
            for (row, column, seed), (settings, curves) in kept.items():
                for quantity, values in curves.items():
                    shown = (" ".join(map(str, values)), " ".join(f"{value:.4g}" for value in values.values()))
                    writer.writerow([row, column, seed, settings, quantity, *shown])


def _thinned(curve: dict[int, float | None]) -> dict[int, float]:
    """Return a curve with all of its first rounds and some of the others, its last among them."""
    known = [(number, value) for number, value in curve.items() if value is not None]
    if len(known) > _MOST:
        later = np.linspace(_FIRST, len(known) - 1, _MOST - _FIRST).round().astype(int)
        known = known[:_FIRST] + [known[i] for i in later]
    return dict(known)
