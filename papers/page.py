"""Tables of runs inside a page of text: every figure between two markers comes from finished runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.saved import absolute
from florets.papers.cells import Cell, Progress, in_order, places, progress_of
from florets.papers.item import Line
from florets.papers.request import Request, read_keys, read_request
from florets.papers.store import CELLS, Store, stored_cells
from florets.papers.table import (
    Table,
    chosen_text,
    code_words,
    compared_grid,
    rank_text,
    reason_letters,
    result_table,
    state_words,
    table_of,
    verdict_words,
)
from florets.reports.console import counted, say
from florets.reports.folder import write_whole
from florets.reports.tables import markdown_table


class PageTables:
    """Returns the table that a block's words ask for; cells of runs that are here are stored on the way.

    Keys of the whole page (`given`), such as data_dir, say where the runs are; those of a block, which table it is.
    """

    def __init__(self, folder: Path, given: Sequence[str], caller: Path) -> None:
        self._folder, self._given, self._caller = folder, given, caller
        self._whole: dict[str, Table] = {}
        self._typed: dict[str, str] = {}

    def __call__(self, block: Sequence[str]) -> Asked:
        """Return what the words of a block ask for."""
        request, own = read_request([*block, *self._given]), read_keys(block, [])[1]
        if request.stored:
            raise ConfigError([f"stored={request.stored}: a page has stored cells of its own; leave it out."])
        name = replace(request, given=own).stored_as
        if (other := self._typed.setdefault(name, request.typed)) != request.typed:
            raise ConfigError([f"{request.typed}: {other} has the same name; files of a page need different ones."])
        if name not in self._whole:
            self._whole[name] = self._table(request, name, "data_dir" in own)
        return Asked(self._whole[name].narrowed(request.chosen, request.seeds), request.asked, name)

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
        if all(place.config is None for place in all_places):
            raise ConfigError(list(dict.fromkeys(place.problem for place in all_places)))
        for cell in in_order(all_places):
            kept(cell)
        store.write([one for place in all_places for one in (*place.candidates, place)])
        # What is stored makes the page, be the runs there or not: their digits beyond the sixth do not.
        store = Store(path, name)
        return table_of(request.item, all_places, lambda cell: store.get(cell.place, cell.seed))

    @cached_property
    def _stored(self) -> dict[tuple[str, int], Progress]:
        return stored_cells(self._folder)


_FOLDERS = ("data_dir", "results_dir")


def remake(words: Sequence[str], caller: Path) -> int:
    """Make the tables of a page anew, and store what they are made of in the folder that is named as the page.

    The words are the page, and keys of all its items.
    """
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        raise ConfigError(["--results-page: name one page, as florets reproduce --results-page papers/clove.md."])
    path = absolute(names[0], caller)
    given = [word for word in words if "=" in word]
    allowed = f"only {' and '.join(_FOLDERS)} may follow a page's name"
    if wrong := [
        f"{word}: {allowed}.{did_you_mean(key, _FOLDERS)} Keys that make another table belong in its block."
        for word in given
        if (key := word.partition("=")[0]) not in _FOLDERS
    ]:
        raise ConfigError(wrong)
    folder = path.with_suffix("")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror})."]) from None
    asked_of = PageTables(folder, given, caller)
    pictures, described = PagePictures(folder), set[str]()
    text, lines = made_page(text, lambda block: item_block(block, asked_of, pictures, described))
    write_whole(path, text)
    for line in lines:
        say(line)
    say(f"Page: {path}")
    if not folder.is_dir():
        say(f"No cell is stored: no folder {folder}, and none is finished in results_dir.")
    return 0


class PagePictures:
    """Draws pictures into a page's folder where all runs that they show are there; elsewhere those of before stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()

    def __call__(self, table: Table, name: str) -> tuple[list[str], str]:
        """Draw a table's plot under a name; return the page's lines that show it, and whether it is new."""
        if name in self._names:
            raise ConfigError(
                [f"plot=yes: {name} has its pictures in a block above; leave it out of one of the two."]
            )
        self._names.add(name)
        said, shown = self._draw(table, name), list[str]()
        for row in (None, *table.item.rows):
            if (path := self._path(name, row)).is_file():
                title = table.item.title if row is None else f"{table.item.title}: {row.label}"
                shown.append(f"![{title}]({quote(f'{self._folder.name}/{path.name}', safe='/=')})")
        return shown, said

    def _path(self, name: str, row: Line | None) -> Path:
        return self._folder / (f"{name}.png" if row is None else f"{name}-{row.name}.png")

    def _draw(self, table: Table, name: str) -> str:
        # matplotlib takes a second, which pages without pictures do not need.
        from florets.papers.plot import OF_CELLS, pictures, without_folders

        lacking = without_folders(table)
        of_before = any(self._path(name, row).is_file() for row in (None, *table.item.rows))
        if lacking and (of_before or table.item.plot["kind"] not in OF_CELLS):
            return f"its plot is the previous one, because the folders of {counted(len(lacking), 'run')} are not here"
        drawn = list(pictures(table))
        # Pictures of other rows than are shown now would be left next to the new ones.
        for path in self._folder.glob(f"{name}*.png"):
            if path.stem == name or path.stem.startswith(f"{name}-"):
                path.unlink()
        self._folder.mkdir(parents=True, exist_ok=True)
        for row, picture in drawn:
            picture.save(self._path(name, row))
        return counted(len(drawn), "picture")


_BLOCK = re.compile(
    r"(?P<begin><!-- reproduce (?P<words>[^\n]*?) -->\n)(?P<old>.*?)(?P<end><!-- end of reproduce -->)", re.DOTALL
)
_MARK = re.compile(r"<!-- (?P<end>end of )?(?P<kind>\w+)(?: [^\n]*)?-->")

_ONLY = {"layout": "methods", "plot": "yes"}
_OWN_WORDS = ("measures", *_ONLY)

Block = Callable[[Sequence[str]], tuple[str | None, str]]
"""Takes a block's words; returns its text, None to leave it as it is, and what it says of itself."""


@dataclass(frozen=True)
class Asked:
    """The table that a block's words name but for its measures, the command that makes it, and its name in files."""

    table: Table
    command: str
    name: str


def made_page(text: str, made: Block) -> tuple[str, list[str]]:
    """Return a page with its blocks made anew, and of each block its words with what it says or why it was left.

    A block begins with the line ``<!-- reproduce <words> -->``, and ends with ``<!-- end of reproduce -->``.
    """
    lines: list[str] = []
    if wrong := _unpaired(text):
        raise ConfigError(wrong)

    def block(found: re.Match[str]) -> str:
        try:
            body, said = made(found["words"].split())
        except ConfigError as error:
            line = text.count("\n", 0, found.start()) + 1
            at = f"line {line}, {found['begin'].strip()}"
            raise ConfigError([f"{at}: {problem}" for problem in error.problems]) from None
        lines.append(f"{found['words']}: {said}")
        return found[0] if body is None else f"{found['begin']}\n{body}\n\n{found['end']}"

    return _BLOCK.sub(block, text), lines


def _unpaired(text: str) -> list[str]:
    """Return a line for each mark that begins or ends no block, or looks like one that would."""
    problems, begun = list[str](), ""
    # An end is missing where another block, or the end of the page, comes first.
    for number, line in enumerate([*text.splitlines(), "<!-- reproduce -->"], start=1):
        if (found := _MARK.fullmatch(line.strip())) is None:
            continue
        where = f"line {number}, {line.strip()}"
        if found["kind"] != "reproduce":
            if hint := did_you_mean(found["kind"], ["reproduce"]):
                problems.append(f"{where}: there is no such block.{hint}")
        elif not found["end"]:
            if begun:
                problems.append(f"{begun}: has no end; close it with <!-- end of reproduce -->.")
            begun = where
        elif not begun:
            problems.append(f"{where}: ends no block; there must be a <!-- reproduce ... --> before it.")
        else:
            begun = ""
    return problems


def item_block(
    words: Sequence[str], asked_of: Callable[[Sequence[str]], Asked], on_page: PagePictures, described: set[str]
) -> tuple[str | None, str]:
    """Return the tables of an item as a block's text; None where no cell is finished: the page is not emptied.

    `described` is what the page has said of items' settings already; this one's `about` is added.
    """
    own = {key: value for key, _, value in (word.partition("=") for word in words) if key in _OWN_WORDS}
    for key, value in _ONLY.items():
        if own.get(key, value) != value:
            raise ConfigError([f"{key}={own[key]}: must be {value}, or left out."])
    asked = asked_of([word for word in words if word.partition("=")[0] not in own])
    table = asked.table
    if "plot" in own and not table.item.plot:
        raise ConfigError([f"plot={own['plot']}: {table.item.name} has no plot; leave it out."])
    said = state_words(table)
    if "measures" in own:
        names = own["measures"].split(",")
        if unknown := [name for name in names if name not in table.item.measures]:
            has = f"It has: {', '.join(table.item.measures)}."
            raise ConfigError([f"measures={','.join(unknown)}: {table.item.name} has no such measure. {has}"])
        table = table.narrowed({"measures": names})
    if not table.states["finished"]:
        return None, "no cell is finished; left as it was"
    about = "" if table.item.about in described else table.item.about
    described.add(about)
    text = _tables(table, asked.command, about, turned="layout" in own)
    if "plot" not in own:
        return text, said
    shown, drawn = on_page(asked.table, asked.name)
    return "\n\n".join([text, *shown]), f"{said}; {drawn}"


def _tables(table: Table, command: str, about: str, turned: bool) -> str:
    parts = [f"`{command}`: {state_words(table)}. {code_words(table)}".strip(), about]
    parts.append(table.item.cut and f"Small scale: {table.item.cut}.")
    letters = reason_letters(table)
    for matrix in (matrix for matrix in table.matrices() if matrix.rows):
        if matrix.name == table.item.ranked:
            parts += [f"{matrix.label}:", rank_text(table, matrix.name)]
            continue
        cells = result_table(table, matrix, letters).turned if turned else result_table(table, matrix)
        parts += [f"{matrix.label}:", markdown_table(cells.texts)]
    parts.append(chosen_text(table))
    if turned and (words := verdict_words(table)):
        parts.append(f"In brackets what is published, with `off` where ours is not near it. {words}.")
        if letters:
            reasons = (f"- off {letter}: {reason}" for reason, letter in letters.items())
            parts.append("\n".join(["Possible reasons:\n", *reasons]))
    elif len(compared := compared_grid(table)) > 1:
        parts += [f"{verdict_words(table)}:", markdown_table(compared)]
    return "\n\n".join(filter(None, parts))
