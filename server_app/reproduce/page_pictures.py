"""Pictures of a page's items, in the folder that is named as the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from florets.conf.problems import ConfigError
from florets.server_app.console import counted
from florets.server_app.reproduce.table import Table

if TYPE_CHECKING:
    from florets.server_app.reproduce.curve_store import CurveStore, LinesOf

_OF_FOLDERS = ("features", "singular_values")
"""Plots of more than is stored beside a page."""


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

    def __call__(self, table: Table, name: str) -> tuple[Sequence[tuple[str, str]], str]:
        """Draw a table's plot under a name.

        Returns
        -------
        sequence of (str, str)
            What each picture shows, and its address in the page.
        str
            Whether they are new, and if not, why.

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
        there = [(title, path) for path, title in self._possible(table, name).items() if path.is_file()]
        return [(title, quote(f"{self._folder.name}/{path.name}", safe="/=")) for title, path in there], said

    def _possible(self, table: Table, name: str) -> dict[Path, str]:
        """Return the files that a plot of the item may have, one, or one for each row, and what they show."""
        rows = {
            self._folder / f"{name}-{row.name}.png": f"{table.item.title}: {row.label}" for row in table.item.rows
        }
        return {self._folder / f"{name}.png": table.item.title, **rows}

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
        with TemporaryDirectory() as scratch:
            drawn = draw(table, Path(scratch), lines_of)
            # Pictures of other rows than are shown now would stand beside the new ones.
            for path in self._folder.glob(f"{name}*.png"):
                if path.stem == name or path.stem.startswith(f"{name}-"):
                    path.unlink()
            for picture in drawn:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / f"{name}{picture.name.removeprefix('plot')}").write_bytes(picture.read_bytes())
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


def _without_curves(table: Table, store: CurveStore) -> int:
    """Return how many finished runs have no curves in the store."""
    from florets.server_app.reproduce.plot import finished

    return sum(not store.get(place, seed) for place in table.places for seed in finished(table, place))
