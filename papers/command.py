"""Items run cell by cell, their tables and plots of the cells that are finished, and the list of all items."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.papers.cells import Cell, Place, Progress, in_order, places, progress_of
from florets.papers.item import Item
from florets.papers.items import find_item, item_names
from florets.papers.measures import read_measure
from florets.papers.references import NEVER, NO_VALUE
from florets.papers.request import Request, read_keys, read_request
from florets.papers.run import BUSY, check_folder, run_cells, with_data
from florets.papers.store import stored_cells
from florets.papers.table import Table, markdown, state_words, table_of, verdict_words, write_table
from florets.reports.console import counted, say
from florets.studies.go_on import Engine

_OF_LIST = ("scale", "stored")
_MOST_SHOWN = 4
"""Measures in a line of progress."""
_BETWEEN_TABLES, _SHARE = 60.0, 0.02
"""Seconds between two tables that are written while cells are run, and how much of the time that may take; a killed
command leaves the last."""


def run_item(words: Sequence[str], engine: Engine, only_table: bool = False) -> int:
    """Run an item's cells; return an exit code: 0, 130 if it was interrupted, 1 if a cell failed or is busy.

    With `only_table` nothing is run: table and plot are made of the cells that are finished.
    """
    caller = Path.cwd()
    request = read_request(words)
    table, folder = finished_table(request, caller), request.folder(caller)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            [f"{folder}: cannot be made ({error.strerror}); name another folder: results_dir=DIR."]
        ) from None
    if only_table:
        return _show(table, folder, request)
    check_folder(request.given, table.places, caller)

    def now() -> Table:
        return table_of(request.item, table.places, _progress(request.stored, caller))

    same = shlex.join(["florets", "reproduce", *words])
    try:
        if _choose(table, request, engine, _progress(request.stored, caller)):
            table = finished_table(request, caller)
        _run(table, folder, request, engine)
    except KeyboardInterrupt:
        _show(now(), folder, request)
        say(f"florets: interrupted; the same command goes on: {same}", sys.stderr)
        return 130
    after = now()
    code = _show(after, folder, request)
    busy = [cell for cell in in_order(table.places) if table.progress(cell).note == BUSY]
    if left := [cell for cell in busy if after.progress(cell).state != "finished"]:
        left_words = f"{counted(len(left), 'cell')} left to another command that is running"
        say(f"florets: {left_words}; once it has ended, give this one again: {same}", sys.stderr)
        return 1
    return code


def finished_table(request: Request, caller: Path) -> Table:
    """Return the table of what is finished now."""
    progress = _progress(request.stored, caller)
    all_places = list(places(request.item, request.given, caller, progress))
    _refuse_if_all_are([place for place in all_places if request.chooses(place)], request)
    return table_of(request.item, all_places, progress)


def _refuse_if_all_are(all_places: Sequence[Place], request: Request | None = None) -> None:
    """Raise ConfigError with the reasons if no place can be run; those that were not given by hand name the item."""
    refused = [place.problem for place in all_places if place.config is None]
    if not refused or len(refused) < len(all_places):
        return
    by_hand = {} if request is None else request.given
    item = "" if request is None else f"{request.typed}: "
    raise ConfigError([("" if p.partition("=")[0] in by_hand else item) + p for p in dict.fromkeys(refused)])


def _progress(stored: str, caller: Path) -> Callable[[Cell], Progress]:
    """Return what tells how far a cell is: from its run, or from what is stored in a page's folder."""
    if not stored:
        return progress_of
    if not (folder := absolute(stored, caller)).is_dir():
        raise ConfigError([f"stored={stored}: there is no such folder; name that of a page, such as papers/clove."])
    known = stored_cells(folder)

    def progress(cell: Cell) -> Progress:
        found = progress_of(cell)
        return found if found.state == "finished" else known.get((cell.place.settings, cell.seed), found)

    return progress


def list_items(words: Sequence[str], caller: Path) -> int:
    """Print every item and how far it is."""
    problems: list[str] = []
    own, given = read_keys(words, problems)
    problems += [
        f"{word}: florets reproduce --list shows every item; it takes keys alone, such as data_dir=DIR."
        for word in words
        if "=" not in word
    ]
    problems += [f"{key}={own[key]}: --list is of whole items; leave it out." for key in own if key not in _OF_LIST]
    if problems:
        raise ConfigError(problems)
    progress = _progress(own.get("stored", ""), caller)
    width = max(map(len, item_names()), default=0)
    items = [find_item(name, own.get("scale", "paper")) for name in item_names()]
    # Told item by item: all their places take half a minute.
    for item, all_places in _refusing_if_none_can_run(
        (item, list(places(item, given, caller, progress))) for item in items
    ):
        table = table_of(item, all_places, progress)
        say(f"{item.name.ljust(width)}  {item.title}")
        say(f"{' ' * width}  {'; '.join(filter(None, [state_words(table), verdict_words(table)]))}")
    return 0


def _refusing_if_none_can_run(items: Iterator[tuple[Item, list[Place]]]) -> Iterator[tuple[Item, list[Place]]]:
    """Pass on items and their places as soon as one of these can be run; raise ConfigError if none ever can."""
    held = []
    for item, all_places in items:
        held.append((item, all_places))
        if any(place.config is not None for place in all_places):
            yield from held
            yield from items
            return
    _refuse_if_all_are([place for _, all_places in held for place in all_places])


def _show(table: Table, folder: Path, request: Request) -> int:
    """Write table and plot, print what was asked for of the table; return 1 where a cell failed or was refused."""
    # matplotlib takes a second that only the end needs
    from florets.papers.plot import draw, without_folders

    whole = write_table(table, folder, request.command)
    asked = table.narrowed(request.chosen, request.seeds)
    say(markdown(asked, request.asked) if request.chosen or request.seeds else whole)
    for path in draw(table, folder):
        say(f"Plot: {path}")
    if table.item.plot.get("kind") == "curves" and (lacking := without_folders(table)):
        say(f"Not in the curves, as their runs' folders were removed: {', '.join(lacking)}")
    say(f"Table: {folder / 'table.md'} ({state_words(table)})")
    return 1 if asked.states["failed"] or asked.states["refused"] else 0


def _choose(table: Table, request: Request, engine: Engine, known: Callable[[Cell], Progress]) -> bool:
    """Run the candidates of places whose settings are still to be chosen; return whether there were any."""
    undecided = [place for place in table.places if place.chosen is None and request.chooses(place)]
    cells = in_order([candidate for place in undecided for candidate in place.candidates])
    waiting, texts = with_data([cell for cell in cells if known(cell).state not in ("finished", "failed")])
    for text in texts:
        say(f"florets: {text}", sys.stderr)
    for number, (cell, progress, seconds) in enumerate(run_cells(waiting, engine, request.n_jobs), start=1):
        found = progress.values.get("validation") if progress.state == "finished" else progress.note
        say(f"[{number}/{len(waiting)} to choose settings] {cell.title}: {progress.state} {found} ({seconds:.1f} s)")
    return bool(waiting)


def _run(table: Table, folder: Path, request: Request, engine: Engine) -> None:
    """Run what is asked for and not finished; the table has what became of each cell."""
    cells = [cell for cell in in_order(table.places) if request.takes(cell) and cell.place.chosen is not None]
    waiting, texts = with_data([cell for cell in cells if table.progress(cell).state != "finished"])
    # Cells that were run before with other code of the user's own, by the files that differ.
    reruns = Counter(one.note for one in map(table.progress, waiting) if one.state == "not run" and one.note)
    texts += [f"{counted(number, 'cell')} run again: not run {note}" for note, number in reruns.items()]
    for text in texts:
        say(f"florets: {text}", sys.stderr)
    say(f"{request.item.name}: {state_words(table)}; {counted(len(waiting), 'cell')} to run; results go to {folder}")
    due = _write(table, folder, request.command)
    for number, (cell, progress, seconds) in enumerate(run_cells(waiting, engine, request.n_jobs), start=1):
        table.found[cell.place.key][cell.seed] = progress
        finished = progress.state == "finished"
        outcome = _outcome(request.item, cell, progress) if finished else f"{progress.state}: {progress.note}"
        say(f"[{number}/{len(waiting)}] {cell.title}: {outcome} ({seconds:.1f} s)")
        if time.monotonic() > due:
            due = _write(table, folder, request.command)


def _write(table: Table, folder: Path, command: str) -> float:
    """Write the table, and return when the next one is due."""
    start = time.monotonic()
    write_table(table, folder, command)
    end = time.monotonic()
    return end + max(_BETWEEN_TABLES, (end - start) / _SHARE)


def _outcome(item: Item, cell: Cell, progress: Progress) -> str:
    """Return the first measures of the item that mean something for a cell, in short."""
    texts = []
    for name, (measure, other) in ((name, read_measure(name)) for name in item.measures):
        if other is not None or not measure.fits(cell.config):
            continue
        value = measure.read(progress.values, cell.config)
        if measure.kind == "count":
            shown = "-" if value is None else "yes" if value else "no"
        else:
            shown = (NEVER if measure.may_be_never else NO_VALUE) if value is None else measure.number(value)
        texts.append(f"{name} {shown}")
    return ", ".join(texts[:_MOST_SHOWN])
