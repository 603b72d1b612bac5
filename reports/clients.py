"""A client's row: in ``clients.csv`` at the end of a run, and in ``clients_over_rounds.csv`` for each round."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from florets.reports.folder import whole_file
from florets.reports.scores import TEST_CELLS, Cell, Part

CLIENTS = "clients.csv"
CLIENTS_OVER_ROUNDS = "clients_over_rounds.csv"


@dataclass(frozen=True)
class ClientRow:
    """A client at the end of a run; without a `name` it is called by its key, without `shares` it mixes no models.

    `cells`: of its tests, by `scores.test_cells`.
    """

    client: str
    true_cluster: int | None
    found_cluster: int | None
    num_examples: int
    device: str
    name: str | None
    shares: Sequence[float]
    cells: Mapping[str, Cell]

    def score(self, part: Part, name: str) -> float | None:
        """Return a figure of one of its tests, None where it has none."""
        return self.cells.get(f"{part}_{name}")


class RoundRow(NamedTuple):
    """A client in a round; the cells of its tests follow."""

    round: int
    client: str
    cluster: int | None
    true_cluster: int | None
    sampled: Literal["true", "false"]
    reply: str | None = None
    rejected: str | None = None
    train_loss: float | None = None
    samples: int | None = None
    halvings: int | None = None
    seconds: float | None = None
    bytes_down: int | None = None
    bytes_up: int | None = None
    kept: float | None = None


TEXTS = ("client", "device", "name", "reply", "rejected")
_OF_A_ROUND = ("round", "cluster", "samples", "halvings", "bytes_down", "bytes_up")
INTEGERS = ("true_cluster", "found_cluster", "num_examples", *_OF_A_ROUND)
"""Columns by what they hold, without those of shares and tests."""


def write_clients(path: Path, rows: Sequence[ClientRow]) -> None:
    """Write the clients; what none of them has (shares, scores, names) has no columns."""
    num_shares = max([len(row.shares) for row in rows], default=0)
    head = ["client", "true_cluster", "found_cluster", *map("share_{}".format, range(num_shares)), "num_examples"]
    head += dict.fromkeys(chain(TEST_CELLS, *(row.cells for row in rows)))
    head += ["device", "name"] if any(row.name is not None for row in rows) else ["device"]
    with whole_file(path) as file:
        lines = csv.DictWriter(file, head, lineterminator="\n", extrasaction="ignore")
        lines.writeheader()
        for row in rows:
            shares = dict(zip(head[3:], row.shares, strict=False))
            lines.writerow({**vars(row), **shares, **row.cells})


def read_clients(folder: Path) -> list[ClientRow]:
    """Return the clients of a finished run."""
    with (folder / CLIENTS).open(newline="", encoding="utf-8") as file:
        try:
            return list(_read(csv.DictReader(file, strict=True)))
        except (csv.Error, KeyError, TypeError) as error:
            raise ValueError(f"a column or a cell is missing or damaged: {error}") from None


def _read(rows: "csv.DictReader[str]") -> Iterator[ClientRow]:
    for row in rows:
        if None in row:
            raise ValueError(f"line {rows.line_num} has more cells than the header")
        shares = [text for name, text in row.items() if name.startswith("share_")]
        tests = {name: text for name, text in row.items() if name.startswith(get_args(Part))}
        yield ClientRow(
            client=row["client"],
            true_cluster=_integer(row["true_cluster"]),
            found_cluster=_integer(row["found_cluster"]),
            num_examples=int(row["num_examples"]),
            device=row["device"],
            name=row.get("name") or None,
            shares=[float(text) for text in shares if text],
            cells={name: _number(name, text) for name, text in tests.items()},
        )


def _number(name: str, text: str) -> Cell:
    if text == "":
        return None
    return int(text) if name.endswith("_examples") else float(text)


def _integer(text: str) -> int | None:
    return None if text == "" else int(text)
