"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from florets.reports.console import say
from florets.reports.summary import RoundLine, ari_words, privacy_words, unplaced_words
from florets.strategies.base.report import EVIDENCE


def describe(line: RoundLine) -> str:
    """Return a round's ARI, accuracy (or loss) and groups found in a few words; what is not known is left out."""
    words = []
    if line["ari"] is not None:
        words.append(with_clients(f"ARI {line['ari']:.3f}", ari_words(line["ari_clients"], line["ari_of"])))
    unplaced = unplaced_words(line["unplaced"], line["num_clusters"])
    if line["accuracy"] is not None:
        words.append(with_clients(f"accuracy {line['accuracy']:.2%}", unplaced))
    elif line["loss"] is not None:
        words.append(with_clients(f"loss {line['loss']:.4g}", unplaced))
    if (tuned := line["tuned_accuracy"]) is not None:
        words.append(f"fine-tuned {tuned:.2%}")
    elif (tuned := line["tuned_loss"]) is not None:
        words.append(f"fine-tuned {tuned:.4g}")
    words += truth_words(line["model_error"], line["cluster_error"], line["cluster_loss"])
    if line["diverged"]:
        words.append(f"diverged on {line['diverged']} of {line['evaluated']} clients")
    replies = line["replies"]
    lost = [f"{replies[kind]} {kind}" for kind in ("error", "missing", "invalid") if replies.get(kind)]
    if lost:
        words.append(f"replies lost: {', '.join(lost)}")
    words += privacy_words(line)
    if evidence := line["details"].get(EVIDENCE):
        words.append(evidence["text"])
    return "  ".join(words)


def with_clients(text: str, clients: str) -> str:
    """Return a figure's text, with its clients in brackets where it is not over all of them."""
    return f"{text} ({clients})" if clients else text


def truth_words(model_error: float | None, cluster_error: float | None, cluster_loss: float | None) -> list[str]:
    """Return what is known of nearness to the truth, of a round or at the end of a run."""
    words = []
    if model_error is not None:
        words.append(f"model error {model_error:.4g}")
    if cluster_error is not None:
        words.append(f"cluster error {cluster_error:.2%}")
    elif cluster_loss is not None:
        words.append(f"cluster loss {cluster_loss:.4g}")
    return words


class _Bar(RichProgress):
    """A bar, and under it what the last round brought: side by side a terminal of 100 columns cuts both short."""

    figures = "starting"

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text(self.figures, no_wrap=True, overflow="ellipsis")


_IS_SILENT = ContextVar("is_silent", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """Show nothing of the runs inside: their caller says what comes of each."""
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


class Progress:
    """Show one round after the other, on standard error by default: standard output is left to results.

    Plain lines begin with the `title`, so that those of parallel runs can be told apart; `quiet` asks for them even
    on a terminal. `done` are the rounds that an interrupted run has completed already.
    """

    def __init__(
        self, title: str, num_rounds: int, quiet: bool = False, stream: TextIO | None = None, done: int = 0
    ) -> None:
        self._title = title
        self._num_rounds = num_rounds
        self._stream = stream if stream is not None else sys.stderr
        self._bar: _Bar | None = None
        self._task = TaskID(0)
        self._figures = ""
        self._console = Console(file=self._stream)
        self._is_silent = _IS_SILENT.get()
        if self._console.is_terminal and not (quiet or self._is_silent):
            columns = TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn()
            self._bar = _Bar(*columns, console=self._console)
            self._task = self._bar.add_task(title, total=num_rounds, completed=done)
            self._bar.start()

    def show(self, line: RoundLine, seconds: float) -> None:
        """Show a finished round: its line of ``rounds.jsonl``, and how long it took."""
        if self._is_silent:
            return
        if self._bar is not None:
            # A bar that loses the figures in the rounds without evaluation would flicker: it keeps the last.
            self._figures = describe(line) or self._figures
            self._bar.figures = f"{line['phase']}  {self._figures}"
            self._bar.update(self._task, completed=line["round"])
            return
        words = [f"round {line['round']}/{self._num_rounds} {line['phase']}", describe(line), f"{seconds:.2f} s"]
        say(f"{self._title} | {'  '.join(filter(None, words))}", self._stream)

    def note(self, text: str) -> None:
        """Show a line of text, above the bar where there is one."""
        if self._is_silent:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            say(f"{self._title} | {text}", self._stream)

    def close(self) -> None:
        """Take the bar down; it stays visible as it was last."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
