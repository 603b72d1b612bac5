"""Tables of a page's items: of what is stored beside the page, and of the runs that are here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.papers.cells import Progress, in_order, places, progress_of
from florets.papers.page import Asked
from florets.papers.request import Request, read_keys, read_request
from florets.papers.store import Store, stored_cells
from florets.papers.table import Found, Table


class PageTables:
    """Returns the table that a block's words ask for; cells of runs that are here are stored on the way.

    Parameters
    ----------
    folder
        That of the page's stored cells.
    given
        Keys of the whole page, such as data_dir: they say where the runs are, those of a block which table it is.
    caller
        The working directory that relative folders are meant from.
    """

    def __init__(self, folder: Path, given: Sequence[str], caller: Path) -> None:
        self._folder, self._given, self._caller = folder, given, caller
        self._whole: dict[str, Table] = {}
        self._typed: dict[str, str] = {}

    def __call__(self, block: Sequence[str]) -> Asked:
        """Return what the words of a block ask for.

        Raises
        ------
        ConfigError
            If the words name nothing.
        """
        request, own = read_request([*block, *self._given]), read_keys(block, [])[1]
        if request.stored:
            raise ConfigError([f"stored={request.stored}: a page has stored cells of its own; leave it out."])
        name = replace(request, given=own).stored_as
        if (other := self._typed.setdefault(name, request.typed)) != request.typed:
            raise ConfigError([f"{request.typed}: {other} has the same name; files of a page need different ones."])
        if name not in self._whole:
            # A block that names its data's folder is about these data; the hash of its settings leaves folders out.
            others = {} if "data_dir" in own else self._stored
            self._whole[name] = self._table(request, Store(self._folder / f"{name}.csv"), others)
        return Asked(self._whole[name].narrowed(request.chosen, request.seeds), request.asked, name)

    def _table(self, request: Request, store: Store, others: Mapping[tuple[str, int], Progress]) -> Table:
        all_places = list(places(request.item, request.given, self._caller))
        if all(place.config is None for place in all_places):
            raise ConfigError(list(dict.fromkeys(place.problem for place in all_places)))
        cells = in_order(all_places)
        for cell in cells:
            place, seed = cell.place, cell.seed
            store.put(place, seed, progress_of(cell))
            if store.get(place, seed).state != "finished":
                store.put(place, seed, others.get((place.settings, seed), Progress("not run")))
        store.write(all_places)
        # What is stored makes the page, be the runs there or not: their digits beyond the sixth do not.
        store = Store(store.path)
        found: dict[tuple[str, str], Found] = {}
        for cell in sorted(cells, key=lambda cell: cell.seed):
            key = (cell.place.row.name, cell.place.column.name)
            found.setdefault(key, {})[cell.seed] = store.get(cell.place, cell.seed)
        return Table(request.item, all_places, found)

    @cached_property
    def _stored(self) -> dict[tuple[str, int], Progress]:
        return stored_cells(self._folder)
