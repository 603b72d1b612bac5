"""The state of a run, from the files in its folder: it may not have begun, be going on, or be over."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml

from florets.conf.problems import ConfigError
from florets.conf.saved import saved_config
from florets.reports.folder import FINISHED, MARKER
from florets.reports.summary import RoundLine, RunSummary, round_seconds
from florets.reports.watch.history import ClientHistory

Status = Literal["waiting", "starting", "running", "silent", "ended", "finished"]
OVER = ("ended", "finished")

_RECENT = 5
"""Rounds by whose time that of the next ones is estimated."""
_ENDED = " ERROR The run ended early"
"""Begins the last line of a log whose run failed or was interrupted."""


@dataclass(frozen=True)
class Names:
    """A run's names, from its configuration; empty where it has none yet."""

    experiment: str = ""
    strategy: str = ""
    seed: str = ""
    task: str = ""


@dataclass(frozen=True)
class RunState:
    """A run as it is now.

    Attributes
    ----------
    status
        waiting (there is no run yet), starting (no round is over), running, silent (no round for long: it may have
        been killed), ended (it failed or was interrupted), finished.
    total
        Rounds that the run has in all, None where that is not known.
    age
        Seconds since the last round.
    reason
        Why it ended early.
    """

    folder: Path
    status: Status
    names: Names = field(default_factory=Names)
    lines: Sequence[RoundLine] = ()
    total: int | None = None
    age: float = 0.0
    reason: str = ""
    summary: RunSummary | None = None

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


class Watched:
    """A run's folder under observation.

    Parameters
    ----------
    folder
        The run's; it need not exist yet.
    """

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
        reason = _end_of_log(self.folder / "run.log")
        summary = _summary(self.folder)
        if summary is not None and (self.folder / FINISHED).is_file():
            return RunState(self.folder, "finished", names, lines, total, age, summary=summary)
        state = RunState(self.folder, "running" if lines else "starting", names, lines, total, age)
        status: Status = state.status
        if reason is not None:
            status = "ended"
        elif lines and age > max(60.0, 10 * (state.round_time or 0.0)):
            status = "silent"
        return RunState(self.folder, status, names, lines, total, age, reason or "")


def _lines(text: str) -> list[RoundLine]:
    """Return the whole lines; a run may be writing the last one."""
    found: list[RoundLine] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        try:
            found.append(json.loads(line))
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
        values = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
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
    return names, _total(folder, values)


def _total(folder: Path, values: dict[str, Any]) -> int | None:
    try:
        # Code that the configuration names is not imported to show a page.
        config = saved_config(folder)
    except ConfigError:
        rounds = values.get("num_rounds")
        return rounds if isinstance(rounds, int) else None
    return config.num_rounds + config.strategy.settings.first_rounds


def _end_of_log(path: Path) -> str | None:
    """Return why the run ended early, None where its log does not end so."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 8192, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return None
    _, found, last = text.rpartition(_ENDED)
    # A resumed run has written lines since.
    return None if not found or _is_logged_again(last) else last.partition(": ")[2].strip()


def _is_logged_again(text: str) -> bool:
    return any(f" {level} " in line for line in text.splitlines()[1:] for level in ("INFO", "WARNING"))


def _summary(folder: Path) -> RunSummary | None:
    try:
        return RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None
