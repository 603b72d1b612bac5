"""The clients over a run's rounds: who is in which group, who moved, whose loss is how high."""

import csv
import io
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from florets.reports.frames import CLIENTS_OVER_ROUNDS

LOSS, TRAIN_LOSS = "test_loss", "train_loss"
_MOST_MOVES = 200
MOST_ROUNDS = 20
"""Newest rounds whose losses are kept."""


class Move(NamedTuple):
    """A client that changed its model."""

    server_round: int
    client: str
    before: int
    now: int


@dataclass(frozen=True)
class _Losses:
    """A client's losses of some rounds, by round."""

    test: dict[int, float]
    train: dict[int, float]


class ClientHistory:
    """Follow the file of a run that may be going on; only what is new in it is read.

    Parameters
    ----------
    folder
        The run's; its file may be missing, now or for ever.

    Attributes
    ----------
    clusters
        Model of each client that has one.
    moves
        The last ones, oldest first. A client's first model is no move.
    troubles
        Number of each client's replies that failed, were missing or were invalid.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLIENTS_OVER_ROUNDS
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self._inode, self._offset = inode, 0
        self._head: list[str] = []
        self.clusters: dict[str, int] = {}
        self.moves: deque[Move] = deque(maxlen=_MOST_MOVES)
        self.troubles: dict[str, int] = {}
        self._losses: dict[str, _Losses] = {}

    def update(self) -> None:
        """Read what was appended since the last call; of a file that was replaced, all."""
        try:
            with self._path.open("rb") as file:
                # Of the open file: the path may lead to another one by now.
                status = os.fstat(file.fileno())
                # A run that begins or goes on writes the file anew.
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._begin(status.st_ino)
                file.seek(self._offset)
                new = file.read()
        except OSError:
            self._begin(0)
            return
        # The last line may not be whole yet.
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        # A name may hold what `str.splitlines` takes for the end of a line.
        for cells in csv.reader(io.StringIO(whole.decode("utf-8", errors="replace"), newline="")):
            if self._head:
                self._take(dict(zip(self._head, cells, strict=False)))
            else:
                self._head = cells

    def _take(self, row: Mapping[str, str]) -> None:
        client, number = row.get("client"), row.get("round", "")
        if not client or not number.isdecimal():
            return
        server_round, cluster = int(number), row.get("cluster", "")
        if cluster.isdecimal():
            before = self.clusters.get(client)
            self.clusters[client] = int(cluster)
            if before not in (None, int(cluster)):
                self.moves.append(Move(server_round, client, before, int(cluster)))
        else:
            self.clusters.pop(client, None)
        if row.get("reply") not in (None, "", "ok"):
            self.troubles[client] = self.troubles.get(client, 0) + 1
        if (losses := self._losses.get(client)) is None:
            losses = self._losses[client] = _Losses({}, {})
        for of, name in ((losses.test, LOSS), (losses.train, TRAIN_LOSS)):
            if value := row.get(name):
                of[server_round] = _number(value)
                if len(of) > MOST_ROUNDS:
                    # They come in the order of the rounds.
                    del of[next(iter(of))]

    def losses(self) -> tuple[str, Sequence[int], Mapping[str, Mapping[int, float]]]:
        """Return the name of the loss that is known, the rounds (at most `MOST_ROUNDS`) and the losses by client."""
        name = LOSS if any(of.test for of in self._losses.values()) else TRAIN_LOSS
        found = {key: of.test if name == LOSS else of.train for key, of in self._losses.items()}
        rounds = sorted({server_round for of in found.values() for server_round in of})[-MOST_ROUNDS:]
        return name, rounds, {key: of for key, of in found.items() if of}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
