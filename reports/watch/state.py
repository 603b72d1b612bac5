"""The state of a run, from the files in its folder: it may not have begun, be going on, or be over."""

import contextlib
import csv
import io
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import yaml

from florets.conf.problems import ConfigError
from florets.conf.saved import saved_config
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.console import counted, duration
from florets.reports.folder import FINISHED, MARKER
from florets.reports.summary import RoundLine, RunSummary, read_line, round_seconds

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


@dataclass
class Contact:
    """A client's part in the exchanges so far.

    Attributes
    ----------
    asked, answered
        Last round in which it was sent a message, and in which it sent a valid reply; 0: none.
    failures
        Rounds with a message since that reply.
    outcome
        What came of its last message: "ok", "error", "missing" or "invalid".
    """

    asked: int = 0
    answered: int = 0
    failures: int = 0
    outcome: str = ""

    def take(self, server_round: int, reply: str) -> None:
        """Take in the round's reply."""
        self.asked, self.outcome = server_round, reply
        if reply == "ok":
            self.answered, self.failures = server_round, 0
        else:
            self.failures += 1


class ClientHistory:
    """Follow the clients of a run that may be going on, over its rounds; only what is new in their file is read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLIENTS_OVER_ROUNDS
        self._begin(0)

    def _begin(self, inode: int) -> None:
        self._inode, self._offset = inode, 0
        self._head: list[str] = []
        self.clusters: dict[str, int] = {}
        """Model of each client that has one."""
        self.moves: deque[Move] = deque(maxlen=_MOST_MOVES)
        """The last ones, oldest first; a client's first model is no move."""
        self.troubles: dict[str, int] = {}
        """Number of each client's replies that failed, were missing or were invalid."""
        self.contacts: dict[str, Contact] = {}
        self._losses: dict[str, dict[str, dict[int, float]]] = {LOSS: {}, TRAIN_LOSS: {}}

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
        if reply := row.get("reply"):
            self.contacts.setdefault(client, Contact()).take(server_round, reply)
            if reply != "ok":
                self.troubles[client] = self.troubles.get(client, 0) + 1
        for name, of_clients in self._losses.items():
            if value := row.get(name):
                of = of_clients.setdefault(client, {})
                try:
                    of[server_round] = float(value)
                except ValueError:
                    of[server_round] = math.nan
                if len(of) > MOST_ROUNDS:
                    # They come in the order of the rounds.
                    del of[next(iter(of))]

    def losses(self) -> tuple[str, Sequence[int], Mapping[str, Mapping[int, float]]]:
        """Return the name of the loss that is known, the rounds (at most `MOST_ROUNDS`) and the losses by client."""
        name = LOSS if self._losses[LOSS] else TRAIN_LOSS
        found = self._losses[name]
        return name, sorted({server_round for of in found.values() for server_round in of})[-MOST_ROUNDS:], found


Status = Literal["waiting", "starting", "running", "silent", "ended", "finished"]
"""waiting: there is no run yet; starting: no round is over; silent: no round for long, it may have been killed;
ended: it failed or was interrupted."""
OVER = ("ended", "finished")

_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ ([A-Z]+) (.*)")
_RECENT = 5
"""Rounds by whose time that of the next ones is estimated."""
_ENDED = "The run ended early"
"""Begins the last line of a log whose run failed or was interrupted, after its time and level."""


@dataclass(frozen=True)
class Names:
    """A run's names, from its configuration; empty where it has none yet."""

    experiment: str = ""
    strategy: str = ""
    seed: str = ""
    task: str = ""


@dataclass(frozen=True)
class RunState:
    """A run as it is now."""

    folder: Path
    status: Status
    names: Names = field(default_factory=Names)
    lines: Sequence[RoundLine] = ()
    total: int | None = None
    """Rounds that the run has in all, None where that is not known."""
    age: float = 0.0
    """Seconds since the last round."""
    reason: str = ""
    """Why it ended early."""
    summary: RunSummary | None = None
    waiting: str = ""
    """For whom it waits, and how long, where its log ends so."""

    @property
    def round_time(self) -> float | None:
        """Mean seconds of the last rounds."""
        return fmean(map(round_seconds, self.lines[-_RECENT:])) if self.lines else None

    @property
    def left(self) -> float | None:
        """Estimated seconds until the last round is over, from the last rounds' times; None where not known."""
        if self.status != "running" or self.total is None or self.round_time is None:
            return None
        rounds = self.total - len(self.lines)
        return max(rounds * self.round_time - min(self.age, self.round_time), 0.0) if rounds > 0 else 0.0

    @property
    def words(self) -> str:
        """How far the run is, in a sentence."""
        done = counted(len(self.lines), "round")
        rounds = f"round {len(self.lines)}" + (f" of {self.total}" if self.total else "")
        if self.status == "waiting":
            return "Waiting for a run in this folder."
        if self.status == "starting":
            return "The run has begun; no round is over yet."
        if self.summary is not None and self.summary.stopped:
            return f"Stopped after {rounds}; it can go on."
        if self.status == "finished":
            return f"Finished after {done}."
        if self.status == "ended":
            return f"Ended early, after {done}."
        if self.status == "silent":
            age = duration(self.age)
            return f"No news for {age}, after {rounds}: the run may be waiting for clients, or was killed."
        if self.left is None:
            return f"Running: {rounds}."
        # Without a precision that an estimate does not have.
        left = float(max(round(self.left), 1)) if self.left < 100 else float(round(self.left / 10) * 10)
        return f"Running: {rounds}; about {duration(left)} left."


class Watched:
    """A run's folder under observation; it need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clients = ClientHistory(folder)

    def signature(self) -> tuple[object, ...]:
        """Return a value that changes with the files of the run."""
        found = []
        for name in (MARKER, "config.yaml", "run.log", "summary.json", FINISHED):
            try:
                status = (self.folder / name).stat()
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def state(self) -> RunState:
        """Read the files, and return what they say."""
        # A round's rows are written before its line.
        self.clients.update()
        try:
            text = (self.folder / MARKER).read_text(encoding="utf-8", errors="replace")
            age = max(time.time() - (self.folder / MARKER).stat().st_mtime, 0.0)
        except OSError:
            return RunState(self.folder, "waiting")
        lines = _lines(text)
        names, total = _configuration(self.folder)
        reason, waiting = _end_of_log(self.folder / "run.log")
        status: Status = "running" if lines else "starting"
        if (summary := _summary(self.folder)) is not None:
            status, reason = "finished", None
        elif reason is not None:
            status = "ended"
        elif lines and age > max(60.0, 10 * fmean(map(round_seconds, lines[-_RECENT:]))):
            status = "silent"
        return RunState(self.folder, status, names, lines, total, age, reason or "", summary, waiting)


_FastSafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def runs_below(folder: Path) -> list[Path]:
    """Return the folders of runs in a folder, or that folder itself, those that wrote last first."""
    found: dict[Path, float] = {}
    # A folder may vanish meanwhile.
    for place, folders, files in os.walk(folder):
        folders[:] = [] if MARKER in files else [name for name in folders if not name.startswith(".")]
        with contextlib.suppress(OSError):
            if MARKER in files:
                found[Path(place)] = os.stat(os.path.join(place, MARKER)).st_mtime
    return sorted(found, key=found.__getitem__, reverse=True)


def _lines(text: str) -> list[RoundLine]:
    """Return the whole lines; a run may be writing the last one."""
    found: list[RoundLine] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        try:
            found.append(read_line(line))
        except ValueError:
            break
    return found


def _configuration(folder: Path) -> tuple[Names, int | None]:
    try:
        changed = (folder / "config.yaml").stat().st_mtime_ns
    except OSError:
        return Names(), None
    return _read_configuration(folder, changed)


@lru_cache(maxsize=4)
def _read_configuration(folder: Path, _changed: int) -> tuple[Names, int | None]:
    try:
        values = yaml.load((folder / "config.yaml").read_text(encoding="utf-8"), _FastSafeLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return Names(), None
    if not isinstance(values, dict):
        return Names(), None
    strategy, task = values.get("strategy"), values.get("task")
    parts = task if isinstance(task, dict) else {}
    names = Names(
        experiment=str(values.get("experiment", "")),
        strategy=str(strategy.get("name", "") if isinstance(strategy, dict) else strategy),
        seed=str(values.get("seed", "")),
        task=", ".join(str(parts[name]) for name in ("data", "partition", "model") if name in parts),
    )
    rounds = values.get("num_rounds")
    # Code that the configuration names is not imported to show a page.
    with contextlib.suppress(ConfigError):
        config = saved_config(folder)
        rounds = config.num_rounds + config.strategy.settings.first_rounds
    return names, rounds if isinstance(rounds, int) else None


def _log_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the level and the text of the last lines of a log; a line that is part of a text belongs to it."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 8192, 0))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return
    level, parts = "", list[str]()
    for line in lines:
        if found := _read_line(line):
            if level:
                yield level, "\n".join(parts)
            level, parts = found[0], [found[1]]
        else:
            parts.append(line)
    if level:
        yield level, "\n".join(parts)


def _read_line(line: str) -> tuple[str, str] | None:
    if found := _LOG_LINE.fullmatch(line):
        return found[1].lower(), found[2]
    try:
        entry = json.loads(line) if line.startswith("{") else {}
        return str(entry["level"]), str(entry["what"])
    except (ValueError, KeyError, TypeError):
        return None


def _end_of_log(path: Path) -> tuple[str | None, str]:
    """Return why the run ended early, None where its log does not end so, and what it waits for, if it does."""
    reason, waiting = None, ""
    for level, text in _log_lines(path):
        if level == "error" and text.startswith(_ENDED):
            reason = text.partition(": ")[2].strip()
        elif level in ("info", "warning"):
            # A resumed run has written lines since.
            reason = None
        waiting = text if text.startswith("waiting for ") else ""
    return reason, waiting


def _summary(folder: Path) -> RunSummary | None:
    """Return the summary of a run that has ended."""
    if not (folder / FINISHED).is_file():
        return None
    try:
        return RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None
