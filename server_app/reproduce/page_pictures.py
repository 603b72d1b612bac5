"""Pictures of a page's items, in the folder that is named as the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from florets.conf.problems import ConfigError
from florets.reports.console import counted
from florets.server_app.reproduce.table import Table

if TYPE_CHECKING:
    from florets.server_app.reproduce.curve_store import CurveStore, LinesOf
    from florets.server_app.reproduce.items import Line

_OF_FOLDERS = ("features", "singular_values")
"""Plots of more than is stored beside a page."""


_RUNS = "finished runs"
"""Name of the text in a picture's file that says of how many runs it is."""


@dataclass(frozen=True)
class Drawn:
    """What came of a table's plot.

    Parameters
    ----------
    pictures
        What each picture shows, and its address in the page.
    said
        Whether they are new, and if not, why.
    note
        What the page must say of them: they are older than the table. Empty where they are not, or nobody knows.
    """

    pictures: Sequence[tuple[str, str]]
    said: str
    note: str


class PagePictures:
    """Draws pictures beside a page, where all runs that they show are there; elsewhere those of before stay.

    Parameters
    ----------
    folder
        That of the page's stored cells; a page links to it by its name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()

    def __call__(self, table: Table, name: str) -> Drawn:
        """Draw a table's plot under a name.

        Raises
        ------
        ConfigError
            If another block of the page has drawn under this name.
        """
        if name in self._names:
            raise ConfigError(
                [f"plot=yes: {name} has its pictures in a block above; leave it out of one of the two."]
            )
        self._names.add(name)
        said = self._draw(table, name)
        there = [(path, row) for path, row in self._possible(table, name).items() if path.is_file()]
        note = " ".join(filter(None, (_age(path, row, _finished(table, row)) for path, row in there)))
        return Drawn([(_title(table, row), self._address(path)) for path, row in there], said, note)

    def _address(self, path: Path) -> str:
        return quote(f"{self._folder.name}/{path.name}", safe="/=")

    def _possible(self, table: Table, name: str) -> dict[Path, Line | None]:
        """Return the files that a plot of the item may have: one of all rows (None), or one of each."""
        return {self._folder / f"{name}.png": None} | {
            self._folder / f"{name}-{row.name}.png": row for row in table.item.rows
        }

    def _draw(self, table: Table, name: str) -> str:
        # matplotlib takes a second, which pages without pictures do not need.
        from florets.server_app.reproduce.plot import draw, without_folders

        lacking, kind = without_folders(table), table.item.plot["kind"]
        lines_of: LinesOf | None = None
        if kind in _OF_FOLDERS:
            reason = f"the folders of {counted(len(lacking), 'run')} are not here" if lacking else ""
        elif len(lacking) == table.states["finished"] and any(path.is_file() for path in self._possible(table, name)):
            reason = "the folder of no run is here"
        elif kind == "curves":
            store = self._curves(table, name)
            lines_of, lost = store.get, _without_curves(table, store)
            reason = f"the curves of {counted(lost, 'run')} are not here" if lost else ""
        else:
            reason = ""
        if reason:
            return f"its plot is that of before, as {reason}"
        rows = self._possible(table, name)
        with TemporaryDirectory() as scratch:
            drawn = draw(table, Path(scratch), lines_of)
            # Pictures of other rows than are shown now would stand beside the new ones.
            for path in self._folder.glob(f"{name}*.png"):
                if path.stem == name or path.stem.startswith(f"{name}-"):
                    path.unlink()
            for picture in drawn:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"{name}{picture.name.removeprefix('plot')}"
                _copy(picture, path, _finished(table, rows.get(path)))
        return counted(len(drawn), "picture")

    def _curves(self, table: Table, name: str) -> CurveStore:
        """Store the curves of the runs that are here beside those of before; return them as the file has them."""
        from florets.server_app.reproduce.curve_store import CurveStore
        from florets.server_app.reproduce.plot import finished, run_lines

        store = CurveStore(self._folder / f"{name}_curves.csv")
        for place in table.places:
            for seed in finished(table, place):
                store.put(place, seed, run_lines(place, seed))
        store.write(table.places)
        # As with cells, what is stored makes the picture, wherever the runs are.
        return CurveStore(store.path)


def _title(table: Table, row: Line | None) -> str:
    return table.item.title if row is None else f"{table.item.title}: {row.label}"


def _finished(table: Table, row: Line | None) -> int:
    """Return how many runs of a row, or of all, are finished."""
    from florets.server_app.reproduce.plot import finished

    return sum(len(finished(table, place)) for place in table.places if row is None or place.row == row)


def _copy(picture: Path, path: Path, runs: int) -> None:
    """Write a picture to its place, with the number of runs that it is of."""
    from PIL import Image, PngImagePlugin

    text = PngImagePlugin.PngInfo()
    text.add_text(_RUNS, str(runs))
    with Image.open(picture) as image:
        image.save(path, pnginfo=text, dpi=image.info["dpi"])


def _age(path: Path, row: Line | None, finished: int) -> str:
    """Return what is to be said of a picture of fewer or more runs than the table's; empty where there is nothing."""
    from PIL import Image

    with Image.open(path) as image:
        runs = image.info.get(_RUNS)
    if runs is None or runs == str(finished):
        return ""
    which = "The picture" if row is None else f"The picture of {row.label}"
    return f"{which} is older than the table: it shows {counted(int(runs), 'finished run')} of now {finished}."


def _without_curves(table: Table, store: CurveStore) -> int:
    """Return how many finished runs have no curves in the store."""
    from florets.server_app.reproduce.plot import finished

    return sum(not store.get(place, seed) for place in table.places for seed in finished(table, place))
