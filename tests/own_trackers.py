"""Trackers of a user's own, named by their import paths."""

from collections.abc import Mapping
from typing import Any

from florets.server_app.tracker import RunEnd, RunStart


class Calls:
    """Keeps what it is called with; `seen` holds the last instance."""

    seen: "Calls"

    def __init__(self) -> None:
        self.starts: list[RunStart] = []
        self.rounds: list[Mapping[str, Any]] = []
        self.ends: list[RunEnd] = []
        Calls.seen = self

    def on_start(self, run: RunStart) -> None:
        self.starts.append(run)

    def on_round(self, line: Mapping[str, Any]) -> None:
        self.rounds.append(line)

    def on_end(self, end: RunEnd) -> None:
        self.ends.append(end)


class NotStarting(Calls):
    """Fails at the start."""

    def on_start(self, run: RunStart) -> None:
        raise ConnectionError("no\nserver")


class Failing(Calls):
    """Fails in its first round, and counts how often it is called."""

    def on_round(self, line: Mapping[str, Any]) -> None:
        super().on_round(line)
        raise ConnectionError("no\nserver")


class Interrupting(Calls):
    """Stops the run in its second round, as ctrl-C does."""

    def on_round(self, line: Mapping[str, Any]) -> None:
        super().on_round(line)
        if line["round"] == 2:
            raise KeyboardInterrupt


class Half:
    """Lacks two of the calls."""

    def on_start(self, run: RunStart) -> None:
        pass
