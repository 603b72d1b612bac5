"""Pictures of a page's items, in the folder that is named as the page."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from florets.conf.problems import ConfigError
from florets.server_app.reproduce.table import Table


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

    def __call__(self, table: Table, name: str) -> Sequence[str]:
        """Draw a table's plot under a name; return the pictures' addresses in the page.

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
        self._draw(table, name)
        # The plot of an item is one picture, or one for each row.
        suffixes = [".png", *(f"-{row.name}.png" for row in table.item.rows)]
        there = [file for suffix in suffixes if (file := self._folder / f"{name}{suffix}").is_file()]
        return [quote(f"{self._folder.name}/{file.name}", safe="/=") for file in there]

    def _draw(self, table: Table, name: str) -> None:
        # matplotlib takes a second, which pages without pictures do not need.
        from florets.server_app.reproduce.plot import draw, without_folders

        if without_folders(table):
            return
        with TemporaryDirectory() as scratch:
            for drawn in draw(table, Path(scratch)):
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / f"{name}{drawn.name.removeprefix('plot')}").write_bytes(drawn.read_bytes())
