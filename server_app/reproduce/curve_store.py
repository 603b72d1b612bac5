"""Curves of an item's runs in one small file: plots are drawn of them where the folders of the runs are not."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from florets.conf.problems import ConfigError
from florets.reports.folder import whole_file
from florets.reports.quantities import QUANTITIES, known_quantities
from florets.reports.summary import RoundLine
from florets.server_app.reproduce.cells import Place

_HEAD = ("row", "column", "seed", "settings", "quantity", "rounds", "values")
_FIRST, _MOST = 20, 80
"""Rounds of a curve that are kept: those in which most happens, and all in all."""

LinesOf = Callable[[Place, int], Sequence[RoundLine]]
"""Returns the rounds of a run, given its place and seed; none where they are not there."""


class CurveStore:
    """What the plot of one item at one scale draws of its runs, as a file has it.

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
            writer.writerow(_HEAD)
            for (row, column, seed), (settings, curves) in kept.items():
                for quantity, values in curves.items():
                    shown = (" ".join(map(str, values)), " ".join(f"{value:.4g}" for value in values.values()))
                    writer.writerow([row, column, seed, settings, quantity, *shown])


def _thinned(curve: dict[int, float | None]) -> dict[int, float]:
    """Return a curve with all of its first rounds and some of the others, its last among them.

    Which ones depends on the rounds alone, so that curves of several seeds have the same ones.
    """
    known = [(number, value) for number, value in curve.items() if value is not None]
    if len(known) > _MOST:
        later = np.linspace(_FIRST, len(known) - 1, _MOST - _FIRST).round().astype(int)
        known = known[:_FIRST] + [known[i] for i in later]
    return dict(known)
