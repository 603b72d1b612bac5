"""Tables of runs inside a page of text: every figure between two markers comes from finished runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.saved import absolute
from florets.papers.cells import Cell, Place, Progress, in_order, places, progress_of
from florets.papers.items import Line, find_item, item_names
from florets.papers.request import Request, read_keys, read_request
from florets.papers.store import CELLS, CURVES, CurveStore, LinesOf, Store, stored_cells
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
from florets.studies.sweep.jobs import Jobs
from florets.studies.sweep.report import store_sweeps, sweep_text


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


_OVERVIEW = ("item", "settings", "cells finished", "comparisons with published values")
_OF_A_PART = ("rows", "columns", "seeds", "measures", "layout", "plot")
"""Words of a block that choose a part of its item, or its look."""


def overview_block(words: Sequence[str], text: str, asked_of: Callable[[Sequence[str]], Asked]) -> tuple[str, str]:
    """Return a table of all items, or of those whose names begin so, and what it says of itself.

    An item is linked to the heading above its first block in the page's text.
    """
    papers = list(dict.fromkeys(name.partition("/")[0] for name in item_names()))
    if unknown := [word for word in words if word not in papers]:
        hint = did_you_mean(unknown[0], papers)
        raise ConfigError([f"{unknown[0]}: no item's name begins so.{hint} There are: {', '.join(papers)}."])
    lines = [list(_OVERVIEW)]
    for name in sorted((n for n in item_names() if n.partition("/")[0] in (words or papers)), key=_natural):
        own: dict[tuple[str, ...], str] = {}
        for _, settings, anchor in (block for block in _blocks(text) if block[0] == name):
            own.setdefault(settings, anchor)
        if not own:
            item = find_item(name)
            shown = [len({c.name for c in item.columns} - set(row.leave_out)) for row in item.rows]
            cells = sum((row.seeds or item.seeds) * count for row, count in zip(item.rows, shown, strict=True))
            lines.append([name, "", f"0 of {cells}", ""])
        for settings, anchor in own.items():
            # The block itself says what is wrong with its words, and in which line.
            with suppress(ConfigError):
                table = asked_of([name, *settings]).table
                finished = f"{table.states['finished']} of {table.states.total()}"
                words_of_it = " ".join(f"`{word}`" for word in settings)
                lines.append([f"[{name}](#{anchor})", words_of_it, finished, verdict_words(table).partition(": ")[2]])
    return markdown_table(lines), counted(len(lines) - 1, "line")


def _blocks(text: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield for each block of an item its name, its settings, and the address of the heading above it."""
    anchor, fenced = "", False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.fullmatch(r"#+ (.*)", line)):
            anchor = re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")
        if block := re.fullmatch(r"<!-- reproduce (\S+)(.*) -->", line):
            settings = [word for word in block[2].split() if word.partition("=")[0] not in _OF_A_PART]
            yield block[1], tuple(settings), anchor


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts figure_2 before figure_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


_SWEEP = "sweep."
_FOLDERS = ("data_dir", "results_dir")


def remake(words: Sequence[str], caller: Path) -> int:
    """Make the tables of a page anew, and store what they are made of in the folder that is named as the page.

    The words are the page, keys of all its items, and ``sweep.<name>=<folder>,...`` of sweeps to be stored anew.
    """
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        raise ConfigError(["--results-page: name one page, as florets reproduce --results-page papers/clove.md."])
    path = absolute(names[0], caller)
    given = [word for word in words if "=" in word and not word.startswith(_SWEEP)]
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
    for word in (word for word in words if word.startswith(_SWEEP)):
        name, _, found = word.removeprefix(_SWEEP).partition("=")
        folders = [absolute(one, caller) for one in found.split(",")]
        say(f"sweep {name}: {counted(store_sweeps(folders, _stored_sweep(folder, name)), 'job')} stored")

    asked_of = PageTables(folder, given, caller)
    pictures, described = PagePictures(folder), set[str]()
    text, lines = made_page(
        text,
        {
            "reproduce": lambda block: item_block(block, asked_of, pictures, described),
            "sweep": lambda block: sweep_block(block, folder),
            "overview": lambda block: overview_block(block, text, asked_of),
        },
    )
    write_whole(path, text)
    for line in lines:
        say(line)
    say(f"Page: {path}")
    if not folder.is_dir():
        say(f"No cell is stored: no folder {folder}, and none is finished in results_dir.")
    return 0


def sweep_block(words: Sequence[str], folder: Path) -> tuple[str | None, str]:
    """Return the table of a stored sweep as a block's text."""
    names = [word for word in words if "=" not in word]
    own: Mapping[str, str] = dict(word.split("=", 1) for word in words if "=" in word)
    mark = f"<!-- sweep {' '.join(words)} -->"
    if len(names) != 1 or not set(own) <= {"where", "columns"}:
        raise ConfigError([f"{mark}: must be <name> [where=<key>:<value>,...] [columns=...]."])
    if not (path := _stored_sweep(folder, names[0])).is_file():
        return None, f"no such sweep is stored (sweep.{names[0]}=<its folder>); left as it was"
    jobs_of_it = Jobs.read(path)
    where = dict(pair.partition(":")[::2] for pair in own["where"].split(",")) if "where" in own else {}
    columns = own["columns"].split(",") if "columns" in own else ()
    try:
        return sweep_text(jobs_of_it, columns, where), counted(len(jobs_of_it), "job")
    except ValueError as error:
        raise ConfigError([f"{mark}: {error}"]) from None


def _stored_sweep(folder: Path, name: str) -> Path:
    return folder / f"sweep-{name}.csv"


_OF_FOLDERS = ("features", "singular_values", "losses")
"""Plots of more than is stored with a page."""
_RUNS = "finished runs"
"""Name of the text in a picture's file that says of how many runs it is."""


@dataclass(frozen=True)
class Drawn:
    """What came of a table's plot.

    `pictures` have what each shows, and its address in the page; `said` is whether they are new, and if not, why;
    `note` is what the page must say of pictures that are older than the table.
    """

    pictures: Sequence[tuple[str, str]]
    said: str
    note: str


class PagePictures:
    """Draws pictures into a page's folder where all runs that they show are there; elsewhere those of before stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()

    def __call__(self, table: Table, name: str) -> Drawn:
        """Draw a table's plot under a name."""
        from PIL import Image

        if name in self._names:
            raise ConfigError(
                [f"plot=yes: {name} has its pictures in a block above; leave it out of one of the two."]
            )
        self._names.add(name)
        said = self._draw(table, name)
        pictures, notes = list[tuple[str, str]](), list[str]()
        for row in (None, *table.item.rows):
            if not (path := self._path(name, row)).is_file():
                continue
            title = table.item.title if row is None else f"{table.item.title}: {row.label}"
            pictures.append((title, quote(f"{self._folder.name}/{path.name}", safe="/=")))
            with Image.open(path) as image:
                runs, now = image.info.get(_RUNS), _finished(table, row)
            if runs not in (None, str(now)):
                which = "The picture" if row is None else f"The picture of {row.label}"
                shown = counted(int(runs), "finished run")
                notes.append(f"{which} is older than the table: it shows {shown} of now {now}.")
        return Drawn(pictures, said, " ".join(notes))

    def _path(self, name: str, row: Line | None) -> Path:
        return self._folder / (f"{name}.png" if row is None else f"{name}-{row.name}.png")

    def _draw(self, table: Table, name: str) -> str:
        # matplotlib takes a second, which pages without pictures do not need.
        from florets.papers.plot import pictures, run_lines, without_folders

        lacking, kind = without_folders(table), table.item.plot["kind"]
        lines_of: LinesOf = run_lines
        of_before = any(self._path(name, row).is_file() for row in (None, *table.item.rows))
        reason = ""
        if kind in _OF_FOLDERS:
            reason = f"the folders of {counted(len(lacking), 'run')} are not here" if lacking else ""
        elif len(lacking) == table.states["finished"] and of_before:
            reason = "the folder of no run is here"
        elif kind == "curves":
            store = self._curves(table, name)
            lost = sum(not store.get(place, seed) for place, seed in _cells(table))
            reason = f"the curves of {counted(lost, 'run')} are not here" if lost else ""
            lines_of = store.get
        if reason:
            return f"its plot is the previous one, because {reason}"
        drawn = list(pictures(table, lines_of))
        # Pictures of other rows than are shown now would be left next to the new ones.
        for path in self._folder.glob(f"{name}*.png"):
            if path.stem == name or path.stem.startswith(f"{name}-"):
                path.unlink()
        self._folder.mkdir(parents=True, exist_ok=True)
        for row, picture in drawn:
            picture.save(self._path(name, row), **{_RUNS: str(_finished(table, row))})
        return counted(len(drawn), "picture")

    def _curves(self, table: Table, name: str) -> CurveStore:
        """Store the curves of the runs that are here, along with earlier ones; return them as the file has them."""
        from florets.papers.plot import run_lines

        store = CurveStore(self._folder / CURVES, name)
        for place, seed in _cells(table):
            store.put(place, seed, run_lines(place, seed))
        store.write(table.places)
        # As with cells, what is stored makes the picture, wherever the runs are.
        return CurveStore(store.path, name)


def _cells(table: Table) -> Iterator[tuple[Place, int]]:
    """Yield the finished cells."""
    return ((place, seed) for place in table.places for seed in table.finished(place))


def _finished(table: Table, row: Line | None) -> int:
    """Return how many runs of a row, or of all, are finished."""
    return sum(row is None or place.row == row for place, _ in _cells(table))


_KINDS = "overview|reproduce|sweep"
_BLOCK = re.compile(
    rf"(?P<begin><!-- (?P<kind>{_KINDS})(?P<words>(?: [^\n]*?)?) -->\n)"
    r"(?P<old>.*?)(?P<end><!-- end of (?P=kind) -->)",
    re.DOTALL,
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


def made_page(text: str, blocks: Mapping[str, Block]) -> tuple[str, list[str]]:
    """Return a page with its blocks made anew, and of each block its words with what it says or why it was left.

    A block begins with ``<!-- <kind> <words> -->`` on a line of its own, and ends with ``<!-- end of <kind> -->``.
    """
    lines: list[str] = []
    if wrong := _unpaired(text):
        raise ConfigError(wrong)

    def block(found: re.Match[str]) -> str:
        try:
            body, said = blocks[found["kind"]](found["words"].split())
        except ConfigError as error:
            line = text.count("\n", 0, found.start()) + 1
            at = f"line {line}, {found['begin'].strip()}"
            raise ConfigError([f"{at}: {problem}" for problem in error.problems]) from None
        lines.append(f"{found['words'].strip() or found['kind']}: {said}")
        return found[0] if body is None else f"{found['begin']}\n{body}\n\n{found['end']}"

    return _BLOCK.sub(block, text), lines


def _unpaired(text: str) -> list[str]:
    """Return a line for each mark that begins or ends no block, or looks like one that would."""
    kinds, problems = _KINDS.split("|"), []
    begun: tuple[str, str] | None = None
    # An end is missing where another block, or the end of the page, comes first.
    for number, line in enumerate([*text.splitlines(), "<!-- overview -->"], start=1):
        if (found := _MARK.fullmatch(line.strip())) is None:
            continue
        kind, where = found["kind"], f"line {number}, {line.strip()}"
        if kind not in kinds:
            if hint := did_you_mean(kind, kinds):
                problems.append(f"{where}: there is no such block.{hint}")
        elif not found["end"]:
            if begun is not None:
                problems.append(f"{begun[1]}: has no end; close it with <!-- end of {begun[0]} -->.")
            begun = kind, where
        elif begun is None or begun[0] != kind:
            problems.append(f"{where}: ends no block; there must be a <!-- {kind} ... --> before it.")
        else:
            begun = None
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
    drawn = on_page(asked.table, asked.name)
    images = [f"![{title}]({address})" for title, address in drawn.pictures]
    return "\n\n".join(filter(None, [text, *images, drawn.note])), f"{said}; {drawn.said}"


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
