"""Items run cell by cell, their tables and plots of the cells that are finished, and the list of all items."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.papers.cells import Cell, Place, Progress, in_order, places, progress_of
from florets.papers.item import Item, find_item, item_names
from florets.papers.measures import read_measure
from florets.papers.references import NO_VALUE
from florets.papers.request import Request, read_keys, read_request
from florets.papers.run import run_cells, with_data
from florets.papers.store import stored_cells
from florets.papers.table import Table, markdown, state_words, table_of, verdict_words, write_table
from florets.reports.console import counted, say
from florets.studies.go_on import Engine

_MOST_SHOWN = 4
"""Measures in a line of progress."""


def run_item(words: Sequence[str], engine: Engine, only_table: bool = False) -> int:
    """Run an item's cells; return an exit code: 0, 130 if it was interrupted, 1 if a cell failed or was refused.

    With `only_table` nothing is run: table and plot are made of the cells that are finished.
    """
    caller = Path.cwd()
    request = read_request(words)
    table = finished_table(request, caller)
    if only_table:
        return _show(table, request, caller)
    try:
        if _choose(table, request, engine, _progress(request.stored, caller)):
            table = finished_table(request, caller)
        _run(table, request, engine)
    except KeyboardInterrupt:
        _show(finished_table(request, caller), request, caller)
        same = shlex.join(["florets", "reproduce", *words])
        say(f"florets: interrupted; the same command goes on: {same}", sys.stderr)
        return 130
    return _show(finished_table(request, caller), request, caller)


def finished_table(request: Request, caller: Path) -> Table:
    """Return the table of what is finished now."""
    progress = _progress(request.stored, caller)
    all_places = list(places(request.item, request.given, caller, progress))
    refuse_all([place for place in all_places if request.chooses(place)])
    return table_of(request.item, all_places, progress)


def refuse_all(all_places: Sequence[Place]) -> None:
    """Raise ConfigError with the reasons if no place can be run."""
    if all_places and all(place.config is None for place in all_places):
        raise ConfigError(list(dict.fromkeys(place.problem for place in all_places)))


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
    own, given = read_keys(words)
    problems = [f"{word}: --list takes keys alone, such as data_dir=DIR." for word in words if "=" not in word]
    problems += [f"{key}: --list is of whole items; leave it out." for key in own if key not in ("scale", "stored")]
    if problems:
        raise ConfigError(problems)
    progress = _progress(own.get("stored", ""), caller)
    width = max(map(len, item_names()), default=0)
    # Told item by item: all their places take half a minute.
    for name in item_names():
        item = find_item(name, own.get("scale", "paper"))
        table = table_of(item, list(places(item, given, caller, progress)), progress)
        say(f"{name.ljust(width)}  {item.title}")
        say(f"{' ' * width}  {'; '.join(filter(None, [state_words(table), verdict_words(table)]))}")
    return 0


def _show(table: Table, request: Request, caller: Path) -> int:
    """Write table and plot, print what was asked for of the table; return 1 where a cell failed or was refused."""
    # matplotlib takes a second that only the end needs
    from florets.papers.plot import draw

    folder = request.folder(caller)
    try:
        write_table(table, folder, request.command)
    except OSError as error:
        raise ConfigError(
            [f"{folder}: cannot be written ({error.strerror or error}); name another folder: results_dir=DIR."]
        ) from None
    asked = table.narrowed(request.chosen, request.seeds)
    say(markdown(asked, request.asked))
    for path in draw(table, folder):
        say(f"Plot: {path}")
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


def _run(table: Table, request: Request, engine: Engine) -> None:
    """Run what is asked for and not finished."""
    cells = [cell for cell in in_order(table.places) if request.takes(cell) and cell.place.chosen is not None]
    waiting, texts = with_data([cell for cell in cells if table.progress(cell).state != "finished"])
    # Cells that were run before with other code of the user's own, by the files that differ.
    reruns = Counter(one.note for one in map(table.progress, waiting) if one.state == "not run" and one.note)
    texts += [f"{counted(number, 'cell')} run again: not run {note}" for note, number in reruns.items()]
    for text in texts:
        say(f"florets: {text}", sys.stderr)
    say(f"{request.item.name}: {state_words(table)}; {counted(len(waiting), 'cell')} to run")
    for number, (cell, progress, seconds) in enumerate(run_cells(waiting, engine, request.n_jobs), start=1):
        finished = progress.state == "finished"
        outcome = _outcome(request.item, cell, progress) if finished else f"{progress.state}: {progress.note}"
        say(f"[{number}/{len(waiting)}] {cell.title}: {outcome} ({seconds:.1f} s)")


def _outcome(item: Item, cell: Cell, progress: Progress) -> str:
    """Return the first measures of the item that mean something for a cell, in short."""
    texts = []
    for name in item.measures:
        measure, other = read_measure(name)
        if other is None and measure.fits(cell.config):
            value = measure.read(progress.values, cell.config)
            texts.append(f"{name} {NO_VALUE if value is None else measure.number(value)}")
    return ", ".join(texts[:_MOST_SHOWN])
