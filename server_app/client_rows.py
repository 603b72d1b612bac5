"""The file `clients_over_rounds.csv`: a row for each round and client, written as soon as the round is over."""

import csv
import io
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from florets.reports.clients import CLIENTS_OVER_ROUNDS, RoundRow
from florets.reports.embedding import EMBEDDINGS, UNKNOWN, Embedding, round_of
from florets.reports.folder import append_lines, make_inside, whole_file
from florets.reports.scores import TEST_CELLS, test_cells
from florets.strategies.base.report import Client, RoundReport

HEAD = RoundRow._fields
"""Columns before those of tests."""

_Place = tuple[int | None, int | None]
"""A client's model and its true cluster."""


class ClientRows:
    """Append each round's rows.

    A client has no row for a round in which nothing happened to it: neither sampled, nor sent a message, nor tested,
    and with the model and the true cluster of its last row. Columns of tests are those of the evaluations so far;
    where an evaluation brings new ones, the file is rewritten. A run that goes on after `done_rounds` takes back
    later ones; ValueError where the file lacks one of those.
    """

    def __init__(self, folder: Path, done_rounds: int | None = None) -> None:
        self._path = folder / CLIENTS_OVER_ROUNDS
        self._tests = list(TEST_CELLS)
        self._places: dict[str, _Place] = {}
        if done_rounds:
            self._take_back(done_rounds)
        else:
            self._write([])

    def _take_back(self, rounds: int) -> None:
        kept, found = [], set()
        try:
            with self._path.open(newline="", encoding="utf-8") as file:
                reader = csv.reader(file)
                head = next(reader, [])
                for row in reader:
                    # A row that a power failure cut off lies after the rounds of the checkpoint.
                    if int(row[0]) > rounds:
                        break
                    kept.append(row)
                    found.add(int(row[0]))
                    self._places[row[1]] = (_number(row[2]), _number(row[3]))
        except (OSError, ValueError, IndexError):
            found.clear()
        if found != set(range(1, rounds + 1)):
            raise ValueError(
                f"{self._path} does not hold rounds 1 to {rounds}, after which the run is to go on; restore the "
                f"file, or run the experiment again"
            )
        self._tests = head[len(HEAD) :]
        self._write(kept)

    def _write(self, rows: Sequence[Sequence[object]]) -> None:
        with whole_file(self._path) as file:
            csv.writer(file, lineterminator="\n").writerows([[*HEAD, *self._tests], *rows])

    def add(self, report: RoundReport, clients: Mapping[str, Client], truth: Mapping[str, int]) -> None:
        """Append the rows of a round, in the order of the client keys; `clients` are all that the run knows."""
        tests = {key: test_cells(evaluation) for key, evaluation in report.evaluations.items()}
        new = dict.fromkeys(name for cells in tests.values() for name in cells if name not in self._tests)
        if new:
            self._widen(list(new))
        sampled = set(report.participants)
        models, before = report.assignment, self._places
        # One pass over all known clients, of which a round may sample few; only those that changed get a row.
        moved = {key: at for key in clients if before.get(key) != (at := (models.get(key), truth.get(key)))}
        before.update(moved)
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        for key in sorted({*sampled, *report.clients, *tests, *moved}):
            is_sampled: Literal["true", "false"] = "true" if key in sampled else "false"
            place = (report.server_round, key, models.get(key), truth.get(key), is_sampled)
            if (part := report.clients.get(key)) is None:
                row = RoundRow(*place)
            else:
                row = RoundRow(
                    *place,
                    reply=part.reply,
                    rejected=part.rejected,
                    train_loss=part.train_loss,
                    samples=part.samples,
                    halvings=part.halvings,
                    seconds=round(part.seconds, 6),
                    bytes_down=part.bytes_down,
                    bytes_up=part.bytes_up,
                    kept=None if part.kept is None else round(part.kept, 6),
                )
            cells = tests.get(key, {})
            rows.writerow([*row, *map(cells.get, self._tests)])
        append_lines(self._path, text.getvalue())

    def _widen(self, names: Sequence[str]) -> None:
        """Add columns; rows that are there have nothing in them."""
        self._tests += names
        with self._path.open(newline="", encoding="utf-8") as file:
            _, *rows = csv.reader(file)
        self._write([[*row, *[""] * len(names)] for row in rows])


def _number(text: str) -> int | None:
    return int(text) if text else None


PARTS = "embeddings"
"""Folder of the parts; gone once they are joined."""


class Embeddings:
    """Write `embeddings.npz`, each round's part as soon as it is over; `done_rounds` as in `ClientRows`."""

    def __init__(self, folder: Path, done_rounds: int | None = None) -> None:
        self._file, self._parts = folder / EMBEDDINGS, folder / PARTS
        if done_rounds is None:
            return
        for part in self._found():
            if int(part.stem) > done_rounds:
                part.unlink()
        if self._file.is_file():
            # A finished run that is resumed.
            self._join(lambda server_round: server_round <= done_rounds)

    def add(self, report: RoundReport, truth: Mapping[str, int]) -> None:
        """Write a round's part, where the round compared clients; `truth` has true clusters by client."""
        found = report.compared
        if found is None:
            return
        labels = [report.assignment.get(key, UNKNOWN) for key in found.clients]
        true = [truth.get(key, UNKNOWN) for key in found.clients]
        part = Embedding(
            report.server_round,
            found.kind,
            np.array(found.clients, dtype=np.str_),
            found.vectors,
            np.array(labels, dtype=np.int64),
            np.array(true, dtype=np.int64),
        )
        path = self._parts / f"{report.server_round}.npz"
        make_inside(self._parts)
        with whole_file(path, "wb") as file:
            np.savez(file, **part.arrays())

    def finish(self) -> None:
        """Join the parts into the file; a run that never compared clients has none."""
        if self._found():
            self._join(lambda _: True)
        # Only now: a run that is killed before has its parts, and joins them again. Killed while it removes them, it
        # has the folder without a part.
        if self._parts.is_dir():
            shutil.rmtree(self._parts)

    def _found(self) -> list[Path]:
        return sorted(self._parts.glob("*.npz"), key=lambda path: int(path.stem))

    def _join(self, wanted: Callable[[int], bool]) -> None:
        """Write the file anew from its own rounds, as far as wanted, and from the parts."""
        sources = [path for path in (self._file, *self._found()) if path.is_file()]
        with whole_file(self._file, "wb") as file, ZipFile(file, "w", ZIP_DEFLATED) as joined:
            written: set[str] = set()
            for source in sources:
                with ZipFile(source) as part:
                    for name in part.namelist():
                        if name not in written and wanted(round_of(name)):
                            written.add(name)
                            # Without the time in it, equal runs leave equal files.
                            member = ZipInfo(name)
                            member.compress_type = ZIP_DEFLATED
                            joined.writestr(member, part.read(name))
