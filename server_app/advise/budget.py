"""The budget of an advice: how many runs it takes, how long, and a bar that shows how far it is."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from florets.reports.console import counted, duration, say
from florets.reports.summary import RoundLine, round_seconds

_BETWEEN = 60.0
"""Seconds after which a plain line shows that work goes on."""


@dataclass(frozen=True)
class Budget:
    """The most that the comparison takes.

    Parameters
    ----------
    runs, rounds
        Runs, and rounds of each.
    clients
        Clients that each round asks.
    exchanges
        Of a round, the test included.
    seconds
        For all of it; 0 where nothing is known.
    """

    runs: int
    rounds: int
    clients: int
    exchanges: int
    seconds: float

    @classmethod
    def of(cls, runs: int, rounds: int, clients: int, lines: Sequence[RoundLine]) -> "Budget":
        """Return the budget, from the rounds of a run that has been made."""
        # The first round has the start in it, and one that looks for groups costs more than others.
        later = [round_seconds(line) for line in lines[1:]] or [round_seconds(line) for line in lines]
        each = sorted(later)[len(later) // 2] if later else 0.0
        tests = max((line["seconds"].get("evaluate", 0.0) for line in lines), default=0.0)
        return cls(runs, rounds, clients, 2, runs * rounds * (each + tests))

    @property
    def text(self) -> str:
        """The budget in one line."""
        messages = self.runs * self.rounds * self.clients * self.exchanges
        longest = f", {duration(self.seconds)}" if self.seconds else ""
        return (
            f"at most {counted(self.runs, 'run')} of {counted(self.rounds, 'round')} "
            f"({messages:,} messages{longest}); a run ends early once it no longer improves"
        )


class Meter:
    """Show the progress of all runs: a bar with the time left on a terminal, a line per run elsewhere.

    Parameters
    ----------
    quiet
        Plain lines on a terminal as well.
    """

    def __init__(self, quiet: bool) -> None:
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._plain = quiet or not self._console.is_terminal
        self._runs = self._rounds = self._done = self._finished = 0
        self._name, self._since, self._said = "", 0.0, 0.0

    def plan(self, runs: int, rounds: int) -> None:
        """Take in how much is ahead, from now on."""
        self._runs, self._rounds, self._finished, self._since = runs, rounds, 0, time.monotonic()
        if self._plain:
            return
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
                TextColumn("{task.fields[left]}"), console=self._console,
            )  # fmt: skip
            self._task = self._bar.add_task("advise", total=runs * rounds, left="")
            self._bar.start()
        self._bar.update(self._task, total=runs * rounds, completed=0)

    def begin(self, name: str) -> None:
        """Note that a run begins."""
        self._name, self._done, self._said = name, 0, time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, description=name)

    def round(self, line: RoundLine) -> None:
        """Note a finished round of the run."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._place, left=self._left())
        elif time.monotonic() - self._said > _BETWEEN:
            self._said = time.monotonic()
            say(f"advise: {self._name}: round {line['round']} of {self._rounds}{self._left(', ')}", sys.stderr)

    def end(self, found: str) -> None:
        """Note that the run has ended, and what it found."""
        self._finished += 1
        if self._bar is not None:
            self._done = 0
            self._bar.update(self._task, completed=self._place, left=self._left())
        else:
            of = f" of {self._runs}" if self._finished <= self._runs else ""
            say(f"advise: run {self._finished}{of}, {self._name}: {found}{self._left(', ')}", sys.stderr)

    def note(self, text: str) -> None:
        """Show a line of text, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            say(text, sys.stderr)

    @property
    def _place(self) -> int:
        return self._finished * self._rounds + min(self._done, self._rounds)

    def _left(self, before: str = "") -> str:
        if not self._finished or self._finished >= self._runs:
            return ""
        # By runs: most end early.
        each = (time.monotonic() - self._since) / self._finished
        return f"{before}about {duration(each * (self._runs - self._finished))} left"

    def __enter__(self) -> "Meter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def number_of_runs(methods: Mapping[str, object], rates: int) -> int:
    """Return how many runs the methods take, each with every learning rate."""
    return len(methods) * rates
