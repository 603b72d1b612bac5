"""The state of a run, from the files in its folder: it may not have begun, be going on, or be over."""

import contextlib
import csv
import io
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal

import yaml

from florets.conf.problems import ConfigError
from florets.conf.saved import saved_config
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.console import counted, duration
from florets.reports.folder import FINISHED, MARKER
from florets.reports.summary import RoundLine, RunSummary, read_line, round_seconds


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


def clients_of(folder: Path) -> tuple[dict[str, Contact], dict[str, int]]:
    """Return each client's part in the exchanges of a run, and the group of each that has one."""
    contacts: dict[str, Contact] = {}
    groups: dict[str, int] = {}
    try:
        text = (folder / CLIENTS_OVER_ROUNDS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return contacts, groups
    # The last line may not be whole yet; a name may hold what `str.splitlines` takes for the end of a line.
    for row in csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline="")):
        client, number, group = row.get("client"), row.get("round") or "", row.get("cluster") or ""
        if not client or not number.isdecimal():
            continue
        groups.pop(client, None)
        if group.isdecimal():
            groups[client] = int(group)
        if reply := row.get("reply"):
            contacts.setdefault(client, Contact()).take(int(number), reply)
    return contacts, groups


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


def state_of(folder: Path) -> RunState:
    """Read the files of a run, which need not exist yet, and return what they say."""
    try:
        text = (folder / MARKER).read_text(encoding="utf-8", errors="replace")
        age = max(time.time() - (folder / MARKER).stat().st_mtime, 0.0)
    except OSError:
        return RunState(folder, "waiting")
    lines = _lines(text)
    names, total = _configuration(folder)
    reason, waiting = _end_of_log(folder / "run.log")
    status: Status = "running" if lines else "starting"
    if (summary := _summary(folder)) is not None:
        status, reason = "finished", None
    elif reason is not None:
        status = "ended"
    elif lines and age > max(60.0, 10 * fmean(map(round_seconds, lines[-_RECENT:]))):
        status = "silent"
    return RunState(folder, status, names, lines, total, age, reason or "", summary, waiting)


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
    # Code that the configuration names is not imported to show a state.
    with contextlib.suppress(ConfigError):
        config = saved_config(folder)
        rounds = config.num_rounds + config.strategy.settings.rounds_before
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
        if found := _LOG_LINE.fullmatch(line):
            if level:
                yield level, "\n".join(parts)
            level, parts = found[1].lower(), [found[2]]
        else:
            parts.append(line)
    if level:
        yield level, "\n".join(parts)


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
