"""The state of a run, from the files in its folder: it may be going on or be over."""

import contextlib
import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml

from florets.conf.problems import ConfigError
from florets.conf.saved import saved_config
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.console import counted, duration
from florets.reports.folder import FINISHED, MARKER
from florets.reports.summary import RoundLine, RunSummary, read_line, round_seconds


@dataclass
class Contact:
    """A client's part in the exchanges so far: the rounds of its last message and valid reply, 0 where there is none.

    `failures`: rounds with a message since that reply; `outcome`: "ok", "error", "missing" or "invalid".
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
    # A name may hold what `str.splitlines` takes for the end of a line.
    for row in csv.DictReader(io.StringIO(_whole_lines(folder / CLIENTS_OVER_ROUNDS), newline="")):
        client, number, group = row.get("client"), row.get("round") or "", row.get("cluster") or ""
        if not client or not number.isdecimal():
            continue
        groups.pop(client, None)
        if group.isdecimal():
            groups[client] = int(group)
        if reply := row.get("reply"):
            contacts.setdefault(client, Contact()).take(int(number), reply)
    return contacts, groups


def _whole_lines(path: Path) -> str:
    """Return a file without a last line that is still being written; nothing where there is no file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text[: text.rfind("\n") + 1]


Status = Literal["starting", "running", "ended", "finished"]
"""starting: no round is over; ended: it failed or was interrupted."""
OVER = ("ended", "finished")

_LOG_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ ", re.MULTILINE)
_ENDED = "The run ended early"
"""Begins the last entry of a log whose run failed or was interrupted."""
_RECENT = 5
"""Rounds by whose time that of the next ones is estimated."""


@dataclass(frozen=True)
class RunState:
    """A run as it is now: `names` are those of its experiment and its parts, `total` its rounds in all, if known.

    `reason`: why it ended early; `waiting`: for whom it waits, and how long, where its log ends so.
    """

    folder: Path
    status: Status
    names: str
    lines: Sequence[RoundLine]
    total: int | None = None
    reason: str = ""
    waiting: str = ""
    summary: RunSummary | None = None

    @property
    def round_time(self) -> float | None:
        """Mean seconds of the last rounds."""
        return fmean(map(round_seconds, self.lines[-_RECENT:])) if self.lines else None

    @property
    def left(self) -> float | None:
        """Estimated seconds until the last round is over; None where not known."""
        if self.status != "running" or self.total is None or self.round_time is None:
            return None
        return max(self.total - len(self.lines), 0) * self.round_time

    @property
    def words(self) -> str:
        """How far the run is, in a sentence."""
        rounds = f"round {len(self.lines)}" + (f" of {self.total}" if self.total else "")
        if self.status == "starting":
            return "The run has begun; no round is over yet."
        if self.summary is not None and self.summary.stopped:
            return f"Stopped after {rounds}; it can go on."
        if self.status == "running":
            # Two digits: an estimate has no more.
            left = "" if self.left is None else f"; about {duration(float(f'{self.left:.2g}'))} left"
            return f"Running: {rounds}{left}."
        done = counted(len(self.lines), "round")
        return f"Finished after {done}." if self.status == "finished" else f"Ended early, after {done}."


def state_of(folder: Path) -> RunState:
    """Read the files of a run, and return what they say."""
    lines: list[RoundLine] = []
    with contextlib.suppress(ValueError):
        for line in _whole_lines(folder / MARKER).splitlines():
            lines.append(read_line(line))
    names, total = _configuration(folder)
    _, *entries = _LOG_ENTRY.split(_whole_lines(folder / "run.log")) or [""]
    last = entries[-1].strip() if entries else ""
    reason = last.partition(": ")[2] if last.startswith(_ENDED) else ""
    waiting = last if last.startswith("waiting for ") else ""
    summary = _summary(folder)
    status: Status = "running" if lines else "starting"
    if summary is not None:
        status = "finished"
    elif last.startswith(_ENDED):
        status = "ended"
    return RunState(folder, status, names, lines, total, reason, waiting, summary)


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


def _configuration(folder: Path) -> tuple[str, int | None]:
    """Return a run's names and its number of rounds, as far as its configuration can be read."""
    try:
        values: Any = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        strategy, task = values["strategy"], values.get("task", {})
        parts = ", ".join(str(task[name]) for name in ("data", "partition", "model") if name in task)
        names = f"{values.get('experiment')} {strategy['name']}, seed {values.get('seed')} ({parts})"
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        return "", None
    rounds = values.get("num_rounds")
    # Code that the configuration names is not imported to show a state.
    with contextlib.suppress(ConfigError):
        config = saved_config(folder)
        rounds = config.num_rounds + config.strategy.settings.rounds_before
    return names, rounds if isinstance(rounds, int) else None


def _summary(folder: Path) -> RunSummary | None:
    """Return the summary of a run that has ended."""
    if not (folder / FINISHED).is_file():
        return None
    try:
        return RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None
