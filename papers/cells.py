"""Cells of an item: which runs it is made of, in what order, and how far each is."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

from florets.conf.overrides import quote, read_overrides
from florets.conf.problems import ConfigError
from florets.conf.saved import absolute, beyond_defaults, results_folder
from florets.conf.schema import Config
from florets.papers.item import Item, Line
from florets.papers.measures import Values, values_of
from florets.reports.folder import MARKER, write_whole
from florets.reports.scores import HIGHER_IS_BETTER
from florets.server_app.own_code import changed_files, changed_words, code_on_disk, recorded_code
from florets.server_app.resume import CHANGEABLE
from florets.studies import one_run
from florets.studies.go_on import finished_run, plain, same_settings
from florets.studies.tune import FRACTION, HELD_OUT
from florets.task.registry import reads_files

RUNS = Path("reproduce") / "runs"
"""Below the results folder: the runs of all items, so that two that have a run in common do it once."""

_NO_PAPERWORK = {"quiet": "true", "loss_matrix": "false", "pictures": "false"}
"""Settings that leave out results which no table needs."""

_ELSEWHERE = {"experiment", "seed", *CHANGEABLE} - {"num_rounds"}
"""Keys that name a run, or say where and how it was made, and not what it computed."""

State = Literal["finished", "failed", "stopped", "not run"]


@dataclass(frozen=True)
class Place:
    """A row and a column, the overrides of its runs, and their configuration with seed 0.

    `config`: None where it is refused, for the reason in `problem`. `candidates`: the places, with validation data,
    among which its settings are chosen; `chosen`: those settings, None as long as candidates are not finished.
    """

    row: Line
    column: Line
    overrides: tuple[str, ...]
    seeds: int
    config: Config | None
    problem: str = ""
    candidates: tuple["Place", ...] = ()
    chosen: Mapping[str, str] | None = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Names of row and column."""
        return self.row.name, self.column.name

    @cached_property
    def folder(self) -> Path:
        """Folder of the runs of all seeds: its path says all that was asked for, and where files of data are."""
        if self.config is None:
            raise ConfigError([self.problem])
        return results_folder(self.config, self.overrides).parent

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The configuration as a record holds it."""
        return plain(self.config) if self.config is not None else {}

    @cached_property
    def code(self) -> dict[str, str]:
        """Hashes of the user's own code that the runs import, as it is now."""
        return code_on_disk(self.config) if self.config is not None else {}

    @cached_property
    def settings(self) -> str:
        """Hash of the runs' settings and own code, without folders and defaults; empty where they are refused."""
        asked = sorted((key, value) for key, value in beyond_defaults(self.plain).items() if key not in _ELSEWHERE)
        asked += sorted(self.code.items())
        text = json.dumps(asked, sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12] if asked else ""

    def cell(self, seed: int) -> "Cell":
        """Return the cell of one seed; the configuration must not have been refused."""
        if self.config is None:
            raise ConfigError([self.problem])
        return Cell(self, seed, replace(self.config, seed=seed), (*self.overrides, f"seed={seed}"))


@dataclass(frozen=True)
class Cell:
    """One run of an item: a row, a column and a seed."""

    place: Place
    seed: int
    config: Config
    overrides: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.place.folder / f"seed-{self.seed}"

    @property
    def record_path(self) -> Path:
        """File next to the folder that says how the run ended."""
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def title(self) -> str:
        """Name of the cell, for a line of progress."""
        return f"{self.place.row.label} | {self.place.column.label} | seed {self.seed}"


@dataclass(frozen=True)
class Progress:
    """How far a cell is; the note says why it failed, after which round it stopped, or that its code has changed."""

    state: State
    values: Values = field(default_factory=dict)
    note: str = ""


def places(
    item: Item, given: Mapping[str, str], caller: Path, progress: "Callable[[Cell], Progress] | None" = None
) -> Iterator[Place]:
    """Yield all places of an item's table but those that are left out, row by row.

    `given`: keys given by hand; they win over the item's. `caller`: what relative folders are meant from. `progress`:
    how far a candidate is, by default as its run's files say.
    """
    results_dir = quote(str(folder_of(given, "results_dir", caller) / RUNS))
    for row in item.rows.values():
        for column in item.columns.values():
            if column.name in row.leave_out:
                continue
            keys = {**_NO_PAPERWORK, **item.overrides, **row.overrides, **column.overrides}
            keys |= {**row.for_columns.get(column.name, {}), **given, "results_dir": results_dir}
            # Of files the place counts, be it the default: another one holds other data.
            keys["data_dir"] = quote(str(folder_of(keys, "data_dir", caller) / row.folder))
            grids = [[(key, value) for value in column.choose[key]] for key in column.choose if key not in given]
            settings = [dict(pairs) for pairs in product(*grids) if pairs]
            candidates = tuple(
                _place(row, _candidate(column, one), keys | one | _HELD_OUT, 1, caller) for one in settings
            )
            chosen = _chosen(settings, candidates, progress or progress_of)
            seeds = item.seeds if row.seeds is None else row.seeds
            place = _place(row, column, keys | (chosen or {}), seeds, caller)
            yield replace(place, candidates=candidates, chosen=chosen)


def _place(row: Line, column: Line, keys: Mapping[str, str], seeds: int, caller: Path) -> Place:
    overrides = {key: f"{key}={value}" for key, value in keys.items()}
    config: Config | None = None
    problem = ""
    try:
        # A folder by hand is refused where the data are in none, and an item's other rows may read it.
        # Of a row with a folder of its own it says what the data are.
        config = one_run.prepare([text for key, text in overrides.items() if row.folder or key != "data_dir"], caller)
        if reads_files(config.task.data) is False:
            del overrides["data_dir"]
        else:
            config = replace(config, data_dir=str(folder_of(keys, "data_dir", caller)))
    except ConfigError as error:
        problem = str(error)
    return Place(row, column, tuple(overrides.values()), seeds, config, problem)


_HELD_OUT = {FRACTION: str(HELD_OUT)}


def _candidate(column: Line, settings: Mapping[str, str]) -> Line:
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    return replace(column, name=f"{column.name} {words}", label=f"{column.label} {words}")


def _chosen(
    settings: Sequence[dict[str, str]], candidates: Sequence[Place], progress: "Callable[[Cell], Progress]"
) -> dict[str, str] | None:
    """Return the settings with the best validation figure, of equals the first; None if some are still to be run.

    Settings that are refused or fail are not chosen; without any others the defaults stay.
    """
    known: list[tuple[float, dict[str, str]]] = []
    for one, place in zip(settings, candidates, strict=True):
        if place.config is None:
            continue
        found = progress(place.cell(0))
        if found.state not in ("finished", "failed"):
            return None
        if (value := found.values.get("validation")) is not None:
            sign = 1 if HIGHER_IS_BETTER[one_run.measure_name(place.config)] else -1
            # As a page's folder has it, so that runs and stored cells choose alike.
            known.append((sign * float(f"{value:.6g}"), one))
    return max(known, key=lambda pair: pair[0])[1] if known else {}


def folder_of(keys: Mapping[str, str], key: Literal["data_dir", "results_dir"], caller: Path) -> Path:
    """Return the folder that a key names, absolute; its text may be in quotes, as `quote` leaves it."""
    if key not in keys:
        return absolute(str(getattr(Config, key)), caller)
    (given,) = read_overrides([f"{key}={keys[key]}"], [])
    return absolute(str(given.value), caller)


def in_order(all_places: Sequence[Place]) -> list[Cell]:
    """Return the cells of all places that can be run: the first seed of all, then the next.

    All columns of a row come one after the other, seed by seed: they have the same data.
    """
    runnable = [place for place in all_places if place.config is not None]
    rows = {name: number for number, name in enumerate(dict.fromkeys(place.row.name for place in all_places))}
    cells = [place.cell(seed) for place in runnable for seed in range(place.seeds)]
    return sorted(cells, key=lambda cell: (cell.seed, rows[cell.place.row.name]))


def progress_of(cell: Cell) -> Progress:
    """Return how far a cell is, from the files that its run has left.

    Of a run that came to its end and was killed before it could say so, the record is written now. A run of other
    settings, as of an earlier version of the item's file or of a preset, does not count, nor does any while the
    settings are to be chosen.
    """
    if cell.place.chosen is None:
        return Progress("not run")
    record = _read(cell.record_path)
    if record is not None:
        if not same_settings(record.get("config"), cell.place.plain):
            return Progress("not run")
        if record.get("error") is not None:
            return Progress("failed", note=str(record["error"]))
        return _of_other_code(record.get("code"), cell) or Progress("finished", values=record["values"])
    folder = cell.folder
    if not (folder / MARKER).is_file():
        return Progress("not run")
    if (found := _of_other_code(recorded_code(folder), cell)) is not None:
        return found
    if (summary := finished_run(folder, cell.place.plain, cell.place.code)) is not None:
        return Progress("finished", values=write_record(cell, values_of(folder, summary, cell.config)))
    rounds = (folder / MARKER).read_text(encoding="utf-8").count("\n")
    return Progress("stopped", note=f"after round {rounds}")


def _of_other_code(then: Any, cell: Cell) -> Progress | None:
    changed = changed_files(then, cell.place.code)
    return Progress("not run", note=f"since its code changed ({changed_words(changed)})") if changed else None


def write_record(cell: Cell, values: Values | None, error: str | None = None) -> Values:
    """Leave on the disk how a cell ended; return its values."""
    record = {"config": cell.place.plain | {"seed": cell.seed}, "values": values, "error": error}
    if values is not None and (code := recorded_code(cell.folder)) is not None:
        record["code"] = code
    cell.record_path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(cell.record_path, json.dumps(record, allow_nan=False) + "\n")
    return values or {}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
