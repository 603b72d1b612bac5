"""`florets reproduce`: run an item's cells, and make its table and plot of those that are finished."""

import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import Config
from florets.server_app import jobs
from florets.server_app.console import counted, say
from florets.server_app.cores import crowded
from florets.server_app.reproduce.cells import Cell, Place, in_order, places, progress_of
from florets.server_app.reproduce.items import Item, as_mapping, find_item, item_names
from florets.server_app.reproduce.run import run_cells
from florets.server_app.reproduce.table import Found, Table
from florets.server_app.reproduce.written import state_words, verdict_words, write_table
from florets.server_app.results.folder import append_line, write_whole
from florets.server_app.resume.go_on import Engine

HELP = """florets reproduce <item> [scale=paper|small] [n_jobs=<n>] [<key>=<value> ...]
  Run a table or figure: every row (data) with every column (method) and seed, each an ordinary run. Stopped with
  Ctrl-C or killed, the same command goes on; finished cells are never run again. Keys given by hand hold for all
  cells (task.data=fashion_mnist, data_dir=..., results_dir=...) and make another table.
florets reproduce <file>.yaml
  The same for an item of your own; docs/reproduce.md says what the file holds.
florets reproduce <item> --table
  Remake table and plot of the cells that are finished; run none.
florets reproduce --list
  Every item, and how far it is.
florets reproduce --results-page <page>.md [data_dir=...] [results_dir=...]
  Make the tables of a page anew from the cells that are finished: each stands between
  <!-- reproduce <item> [scale=...] [rows=...] [columns=...] [measures=...] --> and <!-- end of reproduce -->.

  scale=small      fewer seeds, rows or rounds; the table says what was cut
  n_jobs=4         cells at a time, each in a process of its own (workers=2: each with 2 processes for its clients)
  rows=a,b         these rows alone; columns=a,b these columns (names as in the item's file)
  seeds=5          the first 5 seeds alone

Results: <results_dir>/reproduce/<item>/<scale>/: table.md, table.csv, cells.csv, table.tex and plots; the runs are in
<results_dir>/reproduce/runs/."""

_OPTIONS = ("--list", "--table", "--results-page", "-h", "--help", "--debug")
_OWN_KEYS = ("scale", "n_jobs", "rows", "columns", "seeds")
_OF_NO_TABLE = ("results_dir", "workers")
"""Keys of all cells that change no value of a table."""
_BETWEEN_TABLES, _SHARE = 60.0, 0.02
"""Seconds between two tables that are written while cells are run, and how much of the time that may take; a killed
command leaves the last."""


@dataclass(frozen=True)
class Request:
    """The command line of `florets reproduce`, read."""

    item: Item
    scale: str
    n_jobs: int
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seeds: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The command that remakes this table, as it is typed."""
        keys = [f"{key}={value}" for key, value in self.given.items() if key not in (*_OF_NO_TABLE, "data_dir")]
        scale = [] if self.scale == "paper" else [f"scale={self.scale}"]
        return " ".join(["florets reproduce", self.item.name, *scale, *keys])

    def folder(self, caller: Path) -> Path:
        """Return the folder of table and plots: one for each scale, and for each set of keys given by hand."""
        results = jobs.absolute(self.given.get("results_dir", Config.results_dir), caller)
        keys = {key: value for key, value in self.given.items() if key not in _OF_NO_TABLE}
        name = self.scale
        if keys:
            text = json.dumps(sorted(keys.items()))
            name += f"-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:8]}"
        return results / "reproduce" / self.item.name / name

    def takes(self, cell: Cell) -> bool:
        """Return whether a cell is to be run."""
        place = cell.place
        wanted = (("rows", place.row.name), ("columns", place.column.name))
        inside = self.seeds is None or cell.seed < self.seeds
        return inside and all(name in self.chosen.get(kind, (name,)) for kind, name in wanted)


def main(arguments: Sequence[str], engine: Engine) -> int:
    """Run `florets reproduce` and return its exit code: 0, 1 if a cell failed, 130 if it was interrupted.

    Raises
    ------
    ConfigError
        If the item, an option or a key is wrong.
    """
    caller = Path.cwd()
    options = [text for text in arguments if text.startswith("-")]
    words = [text for text in arguments if not text.startswith("-")]
    if unknown := [text for text in options if text not in _OPTIONS]:
        raise ConfigError(
            [f"{text}: florets reproduce has no such option ({', '.join(_OPTIONS)})." for text in unknown]
        )
    if {"-h", "--help"} & set(options):
        print(HELP)
        return 0
    if "--list" in options:
        return _list(words, caller)
    if "--results-page" in options:
        return _page(words, caller)
    request = read_request(words)
    all_places = list(places(request.item, request.given, caller))
    refused = [place for place in all_places if place.config is None]
    if refused and len(refused) == len(all_places):
        raise ConfigError(list(dict.fromkeys(place.problem for place in refused)))
    cells = in_order(all_places)
    table = _table(request.item, all_places, cells)
    folder = request.folder(caller)
    if "--table" in options:
        return _show(table, folder, request.command)
    return _run(table, [cell for cell in cells if request.takes(cell)], folder, request, engine)


def read_request(words: Sequence[str]) -> Request:
    """Return the command line, read.

    Raises
    ------
    ConfigError
        If there is no such item, or a key is wrong.
    """
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        found = f"{', '.join(names)} are {len(names)}" if names else "there is none"
        raise ConfigError([f"florets reproduce takes one item, and {found}. There are: {', '.join(item_names())}."])
    problems: list[str] = []
    own, given = _keys(words, problems)
    if "seed" in given:
        problems.append(f"seed={given['seed']}: the seeds are the item's; seeds=<n> runs the first n alone.")
    if problems:
        raise ConfigError(problems)
    scale = own.get("scale", "paper")
    item = find_item(names[0], scale)
    chosen = {}
    for kind, lines in (("rows", item.rows), ("columns", item.columns)):
        if kind not in own:
            continue
        chosen[kind] = tuple(own[kind].strip("[]").replace(" ", "").split(","))
        known = [line.name for line in lines]
        problems += [
            f"{kind}={name}: {item.name} has no such {kind[:-1]}.{did_you_mean(name, known)} There are: "
            f"{', '.join(known)}."
            for name in chosen[kind]
            if name not in known
        ]
    numbers = {key: _count(key, own[key], problems) for key in ("n_jobs", "seeds") if key in own}
    if problems:
        raise ConfigError(problems)
    return Request(item, scale, numbers.get("n_jobs", 1), chosen, numbers.get("seeds"), given)


def _keys(words: Sequence[str], problems: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the command's own keys, and those of all cells."""
    texts = [word for word in words if "=" in word]
    own = dict(text.split("=", 1) for text in texts if text.split("=")[0] in _OWN_KEYS)
    return own, as_mapping([text for text in texts if text.split("=")[0] not in _OWN_KEYS], problems)


def _count(key: str, text: str, problems: list[str]) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        problems.append(f"{key}={text}: must be an integer from 1.")
        return 1
    return int(text)


def _table(item: Item, all_places: Sequence[Place], cells: Sequence[Cell]) -> Table:
    found: dict[tuple[str, str], Found] = {}
    for cell in sorted(cells, key=lambda cell: cell.seed):
        key = (cell.place.row.name, cell.place.column.name)
        found.setdefault(key, {})[cell.seed] = progress_of(cell)
    return Table(item, all_places, found)


def _list(words: Sequence[str], caller: Path) -> int:
    """Print every item and how far it is."""
    problems: list[str] = []
    own, given = _keys(words, problems)
    if problems:
        raise ConfigError(problems)
    width = max(map(len, item_names()), default=0)
    for name in item_names():
        item = find_item(name, own.get("scale", "paper"))
        all_places = list(places(item, given, caller))
        table = _table(item, all_places, in_order(all_places))
        refused = sum(place.config is None for place in all_places)
        say(f"{name.ljust(width)}  {item.title}")
        words = [state_words(table), f"{counted(refused, 'place')} refused" if refused else "", verdict_words(table)]
        say(f"{' ' * width}  {'; '.join(filter(None, words))}")
    return 0


def _page(words: Sequence[str], caller: Path) -> int:
    """Make the tables of a page anew."""
    from florets.server_app.reproduce.page import made_page, narrowed

    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        raise ConfigError(["--results-page: name one page, as florets reproduce --results-page docs/results.md."])
    path = jobs.absolute(names[0], caller)
    given = [word for word in words if "=" in word]

    def table_of(block: Sequence[str]) -> tuple[Table, str]:
        request = read_request([*block, *given])
        item = narrowed(request.item, request.chosen)
        all_places = list(places(item, request.given, caller))
        return _table(item, all_places, in_order(all_places)), request.command

    try:
        made = made_page(path.read_text(encoding="utf-8"), table_of)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror})."]) from error
    write_whole(path, made.text)
    for line in made.told:
        say(line)
    return 0


def _show(table: Table, folder: Path, command: str) -> int:
    """Write table and plot, print the table, and return 1 where a cell has failed."""
    from florets.server_app.reproduce.plot import draw  # matplotlib takes a second that only the end needs

    say(write_table(table, folder, command))
    for path in draw(table, folder):
        say(f"Plot: {path}")
    say(f"Table: {folder / 'table.md'} ({state_words(table)})")
    return 1 if table.states["failed"] else 0


def _run(table: Table, cells: Sequence[Cell], folder: Path, request: Request, engine: Engine) -> int:
    waiting = [cell for cell in cells if _found(table, cell)[cell.seed].state != "finished"]
    say(f"{request.item.name}: {state_words(table)}; {counted(len(waiting), 'cell')} to run; results go to {folder}")
    if warning := crowded(request.n_jobs, [cell.config.workers for cell in waiting]):
        say(f"florets: {warning}", sys.stderr)
    due, ended_early = _write(table, folder, request.command), False
    try:
        for number, (cell, progress, seconds) in enumerate(run_cells(waiting, engine, request.n_jobs), start=1):
            _found(table, cell)[cell.seed] = progress
            append_line(folder / "log.jsonl", json.dumps({"cell": cell.title, "state": progress.state}))
            outcome = (
                _outcome(progress.values) if progress.state == "finished" else f"{progress.state}: {progress.note}"
            )
            say(f"[{number}/{len(waiting)}] {cell.title}: {outcome} ({seconds:.1f} s)")
            if time.monotonic() > due:
                due = _write(table, folder, request.command)
    except KeyboardInterrupt:
        ended_early = True
    code = _show(_table(table.item, table.places, in_order(table.places)), folder, request.command)
    if ended_early:
        say(f"florets: interrupted; the same command goes on: {request.command}", sys.stderr)
        return 130
    return code


def _write(table: Table, folder: Path, command: str) -> float:
    """Write the table, and return when the next one is due."""
    start = time.monotonic()
    write_table(table, folder, command)
    end = time.monotonic()
    return end + max(_BETWEEN_TABLES, (end - start) / _SHARE)


def _found(table: Table, cell: Cell) -> Found:
    return table.found[cell.place.row.name, cell.place.column.name]


def _outcome(values: Mapping[str, object]) -> str:
    shown = (("accuracy", "{:.3f}"), ("loss", "{:.4g}"), ("ari", "{:.2f}"), ("groups", "{}"))
    texts = [f"{name} {form.format(values[name])}" for name, form in shown if values.get(name) is not None]
    return ", ".join(texts)
