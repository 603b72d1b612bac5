"""Tables of runs inside a page of text: every figure between two markers comes from finished runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.papers.cells import Cell, Progress, in_order, places, progress_of
from florets.papers.command import refuse_all
from florets.papers.request import Request, read_keys, read_request
from florets.papers.store import CELLS, Store, stored_cells
from florets.papers.table import Table, body, state_words, table_of
from florets.reports.console import counted, say
from florets.reports.folder import write_whole

_FOLDERS = ("data_dir", "results_dir")
_BEGIN = re.compile(r"<!-- reproduce (.*) -->")
_END = "<!-- end of reproduce -->"


def remake(words: Sequence[str], caller: Path) -> int:
    """Make the tables of a page anew, and store what they are made of in the folder that is named as the page.

    The words are the page, and folders of all its items: other keys belong in a block.
    """
    names = [word for word in words if "=" not in word]
    given = [word for word in words if "=" in word]
    wrong = [word for word in given if word.partition("=")[0] not in _FOLDERS]
    if len(names) != 1 or wrong:
        raise ConfigError(
            [
                f"--results-page takes one page, as papers/clove.md, with {' and '.join(_FOLDERS)} at most"
                f"{', not ' * bool(wrong)}{', '.join(wrong)}."
            ]
        )
    path = absolute(names[0], caller)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror})."]) from None
    write_whole(path, _Page(path.with_suffix(""), given, caller).remade(text))
    say(f"Page: {path}")
    return 0


class _Page:
    """A page with its folder, in which cells of runs that are here are stored on the way."""

    def __init__(self, folder: Path, given: Sequence[str], caller: Path) -> None:
        self._folder, self._given, self._caller = folder, given, caller
        self._tables: dict[str, Table] = {}
        self._described: set[str] = set()

    def remade(self, text: str) -> str:
        """Return the page's text with each block made anew that has a finished cell."""
        lines, kept = text.splitlines(keepends=True), list[str]()
        number = 0
        while number < len(lines):
            kept.append(lines[number])
            number += 1
            if (found := _BEGIN.fullmatch(kept[-1].strip())) is None:
                continue
            end = next((n for n in range(number, len(lines)) if lines[n].startswith("<!--")), len(lines))
            at = f"line {number}, {found[0]}"
            if end == len(lines) or lines[end].strip() != _END:
                raise ConfigError([f"{at}: has no end; close it with {_END}."])
            try:
                made = self._block(found[1].split())
            except ConfigError as error:
                raise ConfigError([f"{at}: {problem}" for problem in error.problems]) from None
            kept += lines[number:end] if made is None else [f"\n{made}\n\n"]
            number = end
        return "".join(kept)

    def _block(self, words: Sequence[str]) -> str | None:
        """Return the text that a block's words ask for; None where no cell is finished: a page is not emptied."""
        own = {key: value for key, _, value in (word.partition("=") for word in words) if key in ("measures", "plot")}
        block = [word for word in words if word.partition("=")[0] not in own]
        request = read_request([*block, *self._given])
        if request.stored:
            raise ConfigError([f"stored={request.stored}: a page has stored cells of its own; leave it out."])
        own_keys = read_keys(block)[1]
        name = replace(request, given=own_keys).stored_as
        if name not in self._tables:
            self._tables[name] = self._table(request, name, "data_dir" in own_keys)
        table = self._tables[name].narrowed(request.chosen, request.seeds)
        shown = table
        if "measures" in own:
            names = own["measures"].split(",")
            if unknown := [one for one in names if one not in table.item.measures]:
                has = f"It has: {', '.join(table.item.measures)}."
                raise ConfigError([f"measures={','.join(unknown)}: {table.item.name} has no such measure. {has}"])
            shown = table.narrowed({"measures": names})
        if not table.states["finished"]:
            say(f"{' '.join(words)}: no cell is finished; left as it was")
            return None
        about = "" if table.item.about in self._described else table.item.about
        self._described.add(about)
        pictures = self._pictures(table, name) if "plot" in own else []
        say(f"{' '.join(words)}: {state_words(table)}")
        return "\n\n".join([body(shown, request.asked, about), *pictures])

    def _table(self, request: Request, name: str, of_folder: bool) -> Table:
        # A block that names its data's folder is about these data; the hash of its settings leaves folders out.
        path = self._folder / CELLS
        store, others = Store(path, name), {} if of_folder else self._stored

        def kept(cell: Cell) -> Progress:
            place, seed = cell.place, cell.seed
            store.put(place, seed, progress_of(cell))
            if store.get(place, seed).state != "finished":
                store.put(place, seed, others.get((place.settings, seed), Progress("not run")))
            return store.get(place, seed)

        all_places = list(places(request.item, request.given, self._caller, kept))
        refuse_all(all_places)
        for cell in in_order(all_places):
            kept(cell)
        store.write([one for place in all_places for one in (*place.candidates, place)])
        # What is stored makes the page, be the runs there or not: their digits beyond the sixth do not.
        store = Store(path, name)
        return table_of(request.item, all_places, lambda cell: store.get(cell.place, cell.seed))

    @cached_property
    def _stored(self) -> dict[tuple[str, int], Progress]:
        return stored_cells(self._folder)

    def _pictures(self, table: Table, name: str) -> list[str]:
        """Draw a table's plot where all runs that it shows are here, else keep what is there; return its lines."""
        # matplotlib takes a second, which pages without pictures do not need.
        from florets.papers.plot import pictures, without_folders

        if lacking := without_folders(table):
            say(f"{name}: the plot is the previous one: the folders of {counted(len(lacking), 'run')} are not here")
        else:
            for path in self._folder.glob(f"{name}*.png"):
                if path.stem == name or path.stem.startswith(f"{name}-"):
                    path.unlink()
            for row, picture in pictures(table):
                picture.save(self._folder / (f"{name}.png" if row is None else f"{name}-{row.name}.png"))
        titles = {name: table.item.title}
        titles |= {f"{name}-{row.name}": f"{table.item.title}: {row.label}" for row in table.item.rows.values()}
        return [
            f"![{title}]({quote(f'{self._folder.name}/{stem}.png', safe='/=')})"
            for stem, title in titles.items()
            if (self._folder / f"{stem}.png").is_file()
        ]
