"""Cells of the tables of a page, and curves of their runs: pages are made of them where no folder of a run is."""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np

from florets.conf.problems import ConfigError
from florets.papers.cells import Place, Progress, State
from florets.papers.measures import Values
from florets.reports.quantities import known_quantities
from florets.reports.summary import Curve, Curves, RoundLine
from florets.reports.tables import write_csv

CELLS, CURVES = "cells.csv", "curves.csv"
"""In the folder that is named as the page."""

_KEY = ("table", "row", "column", "seed", "settings")
_HEAD = (*_KEY, "state", "note")
_CURVES_HEAD = (*_KEY, "quantity", "rounds", "values")
_WORDS = ("verdict", "code")
"""Values that are no numbers."""
_OF_DRIFT = ("rounds_of_ari_1",)
"""Lists as long as the run, which are of use only where the data change."""
_STATES: tuple[State, ...] = ("finished", "failed", "stopped")
_FIRST, _MOST = 20, 80
"""Rounds of a curve that are kept: those in which most happens, and all in all."""

LinesOf = Callable[[Place, int], Sequence[Curves]]
"""Returns the rounds of a run, given its place and seed; none where they are not there."""
T = TypeVar("T")


class _Stored(Generic[T]):
    """What a file holds of one table's runs, by row, column and seed, with the hash of their settings.

    Lines of other tables stay as they are.
    """

    head: Sequence[str]
    what: str

    def __init__(self, path: Path, table: str) -> None:
        self.path, self._table, at = path, table, ""
        self._others: list[dict[str, str]] = []
        self._runs: dict[tuple[str, str, int], tuple[str, T]] = {}
        if not path.exists():
            return
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                if tuple(reader.fieldnames or ())[: len(self.head)] != self.head:
                    raise ValueError(f"its first line must begin with {','.join(self.head)}")
                for line in reader:
                    at = f"line {reader.line_num}: "
                    if line["table"] != table:
                        self._others.append(line)
                        continue
                    key = line["row"], line["column"], int(line["seed"])
                    known = self._runs.get(key)
                    self._runs[key] = line["settings"], self._read(line, known and known[1])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                [f"{path}: cannot be read as stored {self.what} ({at}{reason}); restore or remove it."]
            ) from None

    def _read(self, line: Mapping[str, str], known: T | None) -> T:
        raise NotImplementedError

    def _found(self, place: Place, seed: int) -> T | None:
        """Return what is stored of a run; nothing if it was stored with other settings."""
        settings, found = self._runs.get((*place.key, seed), ("", None))
        return found if settings == place.settings else None

    def _ordered(self, places: Sequence[Place]) -> dict[tuple[str, str, int], tuple[str, T]]:
        """Return the runs of these places, then those that none of them asks for now.

        Those count again once the item asks for their settings; a run in their place replaces them.
        """
        keys = [(*place.key, seed) for place in places for seed in range(place.seeds) if self._found(place, seed)]
        return {key: self._runs[key] for key in dict.fromkeys([*keys, *self._runs])}

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write this table's rows among those of the others, all in one order whichever is written last."""
        rows = sorted([*self._others, *rows], key=lambda row: str(row["table"]))
        if not rows:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        values = {name for row in rows for name, value in row.items() if value != ""}
        write_csv(self.path, [*self.head, *sorted(values.difference(self.head))], rows)


class Store(_Stored[Progress]):
    """The cells of one table, an item at one scale; those that were not run are not in it."""

    head, what = _HEAD, "cells"

    def _read(self, line: Mapping[str, str], known: Progress | None) -> Progress:
        if line["state"] not in _STATES:
            raise ValueError(f"state {line['state']} is none of {', '.join(_STATES)}")
        state = _STATES[_STATES.index(line["state"])]
        if state != "finished":
            return Progress(state, note=line["note"])
        texts = {name: text for name, text in line.items() if name not in _HEAD and text}
        values = {name: text if name in _WORDS else json.loads(text) for name, text in texts.items()}
        return Progress(state, cast(Values, values), line["note"])

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
        """Write the cells of these places, then finished ones that none of them asks for now."""
        asked = {(*place.key, seed) for place in places for seed in range(place.seeds) if self._found(place, seed)}
        drifts = any(place.config is not None and place.config.task.drift.rounds for place in places)
        left_out = ("warnings", *(() if drifts else _OF_DRIFT))
        rows: list[dict[str, Any]] = [
            dict(zip(_HEAD, (self._table, *key, settings, found.state, found.note), strict=True))
            | {
                name: _written(value)
                for name, value in found.values.items()
                if value is not None and name not in left_out
            }
            for key, (settings, found) in self._ordered(places).items()
            if key in asked or found.state == "finished"
        ]
        self._write(rows)


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


class CurveStore(_Stored[dict[str, dict[int, float]]]):
    """What the plot of one table draws of its runs: by quantity the values by round."""

    head, what = _CURVES_HEAD, "curves"

    def _read(
        self, line: Mapping[str, str], known: dict[str, dict[int, float]] | None
    ) -> dict[str, dict[int, float]]:
        rounds, values = map(int, line["rounds"].split()), map(float, line["values"].split())
        return (known or {}) | {line["quantity"]: dict(zip(rounds, values, strict=True))}

    def put(self, place: Place, seed: int, lines: Sequence[RoundLine]) -> None:
        """Store the curves of a run; without lines what is stored stays."""
        if lines:
            known = known_quantities([lines])
            curves = {str(key): _thinned({line["round"]: line[key] for line in lines}) for key in known}
            self._runs[*place.key, seed] = place.settings, curves

    def get(self, place: Place, seed: int) -> list[Curves]:
        """Return the rounds that are stored of a run, none if it was stored with other settings."""
        curves = self._found(place, seed) or {}
        rounds = sorted({number for values in curves.values() for number in values})

        def of(name: Curve, number: int) -> float | None:
            return curves.get(name, {}).get(number)

        return [
            {
                "round": number,
                "ari": of("ari", number),
                "accuracy": of("accuracy", number),
                "loss": of("loss", number),
                "validation": of("validation", number),
                "model_error": of("model_error", number),
                "cluster_error": of("cluster_error", number),
                "cluster_loss": of("cluster_loss", number),
            }
            for number in rounds
        ]

    def write(self, places: Sequence[Place]) -> None:
        """Write the runs of these places, then those that none of them asks for now."""
        rows = []
        for key, (settings, curves) in self._ordered(places).items():
            for quantity, values in curves.items():
                texts = (" ".join(map(str, values)), " ".join(f"{value:.4g}" for value in values.values()))
                rows.append(dict(zip(_CURVES_HEAD, (self._table, *key, settings, quantity, *texts), strict=True)))
        self._write(rows)


def _thinned(curve: dict[int, float | None]) -> dict[int, float]:
    """Return a curve with all of its first rounds and some of the others, its last among them."""
    known = [(number, value) for number, value in curve.items() if value is not None]
    if len(known) > _MOST:
        later = np.linspace(_FIRST, len(known) - 1, _MOST - _FIRST).round().astype(int)
        known = known[:_FIRST] + [known[i] for i in later]
    return dict(known)
