"""Cells of an item in one small file: tables are made of it where the folders of the runs are not."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.reports.folder import whole_file
from florets.server_app.reproduce.cells import Place, Progress, State

_HEAD = ("row", "column", "seed", "settings", "state", "note")
_WORDS = ("verdict", "code")
"""Values that are no numbers."""
_LEFT_OUT = ("warnings",)
_OF_DRIFT = ("rounds_of_ari_1",)
"""Lists as long as the run, which are of use only where the data change."""
_STATES: tuple[State, ...] = ("finished", "failed", "stopped")


class Store:
    """The cells of one item at one scale, as its file has them; those that were not run are not in it.

    Parameters
    ----------
    path
        The file; it may be missing.

    Raises
    ------
    ConfigError
        If the file cannot be read.
    """

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

        Parameters
        ----------
        places
            Those of the whole item.
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

    Raises
    ------
    ConfigError
        If a file cannot be read.
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
