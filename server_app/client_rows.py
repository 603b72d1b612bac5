"""A run's rows of each round and client, and the vectors that it compared, written as soon as the round is over."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from florets.reports.clients import CLIENTS_OVER_ROUNDS, RoundRow
from florets.reports.embedding import EMBEDDINGS, UNKNOWN, rounds_of
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
    later ones, and later vectors; ValueError where the file lacks one of those.
    """

    def __init__(self, folder: Path, done_rounds: int | None = None) -> None:
        self._path = folder / CLIENTS_OVER_ROUNDS
        self._tests = list(TEST_CELLS)
        self._places: dict[str, _Place] = {}
        if done_rounds is not None:
            for server_round, path in rounds_of(folder).items():
                if server_round > done_rounds:
                    path.unlink()
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
            # Rows that are there have nothing in these columns.
            self._tests += new
            with self._path.open(newline="", encoding="utf-8") as file:
                _, *earlier = csv.reader(file)
            self._write([row + [""] * len(new) for row in earlier])
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


def _number(text: str) -> int | None:
    return int(text) if text else None


def save_embedding(folder: Path, report: RoundReport, truth: Mapping[str, int]) -> None:
    """Write the vectors by which a round compared its clients, if it did; `truth` has true clusters by client."""
    found = report.compared
    if found is None:
        return
    make_inside(folder / EMBEDDINGS)
    with whole_file(folder / EMBEDDINGS / f"{report.server_round}.npz", "wb") as file:
        np.savez_compressed(
            file,
            kind=found.kind,
            clients=np.array(found.clients, dtype=np.str_),
            vectors=found.vectors,
            labels=np.array([report.assignment.get(key, UNKNOWN) for key in found.clients], dtype=np.int64),
            true_labels=np.array([truth.get(key, UNKNOWN) for key in found.clients], dtype=np.int64),
        )
