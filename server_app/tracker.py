"""Trackers of a run: their protocol, what they are given, and calls of which no failure ends the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from florets.conf.overrides import dotted
from florets.conf.schema import Config, as_plain
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.summary import RoundLine, RunSummary
from florets.server_app.recorder import Recorder


@dataclass(frozen=True)
class RunStart:
    """A run that begins or goes on after `done_rounds` of its `num_rounds`."""

    folder: Path
    results_dir: Path
    """Folder of all results, where trackers have their stores by default."""
    name: str
    """The run's folder relative to `results_dir`, such as ``quickstart/clove/seed-0``."""
    experiment: str
    params: Mapping[str, Any]
    """The whole configuration, by dotted keys."""
    num_rounds: int
    done_rounds: int = 0


@dataclass(frozen=True)
class RunEnd:
    """A run that has finished, failed or was interrupted."""

    summary: RunSummary | None
    """The headline figures; None where the run ended early."""
    error: BaseException | None = None
    files: Sequence[Path] = ()
    """The report, the pictures and the tables that the run left."""


class Tracker(Protocol):
    """What a run calls as it goes on; whatever an implementation raises, the run continues without it."""

    def on_start(self, run: RunStart) -> None:
        """Begin, before the first round."""

    def on_round(self, line: RoundLine) -> None:
        """Take a finished round: its line of ``rounds.jsonl``."""

    def on_end(self, end: RunEnd) -> None:
        """Close, also where the run fails or is interrupted."""


_FILES = (
    *("report.html", "config.yaml", "summary.json", "clients.csv"),
    *(CLIENTS_OVER_ROUNDS, "loss_matrix.csv", "run.log"),
)


class Tracking:
    """Call all trackers of a run; leaving the block passes on how it ended.

    One that fails, at the start or later, is named in a warning and left out of further rounds; `on_end` is still
    called, so that it can close what it has open.
    """

    def __init__(self, trackers: Mapping[str, Tracker], recorder: Recorder) -> None:
        self._trackers, self._recorder = trackers, recorder
        self._failed: set[str] = set()
        self._has_started = False
        self.summary: RunSummary | None = None
        """Set once the run is finished."""

    def start(self, config: Config, num_rounds: int, done_rounds: int) -> None:
        """Pass on what is run."""
        folder, root = self._recorder.folder, Path(config.results_dir).expanduser().absolute()
        run = RunStart(
            folder=folder,
            results_dir=root,
            name=folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name,
            experiment=config.experiment,
            params=dict(dotted(as_plain(config))),
            num_rounds=num_rounds,
            done_rounds=done_rounds,
        )
        self._has_started = True
        self._call(lambda tracker: tracker.on_start(run))

    def round(self, line: RoundLine) -> None:
        """Pass a finished round on."""
        self._call(lambda tracker: tracker.on_round(line))

    def _call(self, call: Callable[[Tracker], None], last: bool = False) -> None:
        for name, tracker in self._trackers.items():
            if name in self._failed and not last:
                continue
            try:
                call(tracker)
            except Exception as error:  # a tracker may fail in any way, and no result depends on it
                if name not in self._failed:
                    reason = " ".join(str(error).split())[:300]
                    self._recorder.warn(
                        f"tracker={name} failed ({type(error).__name__}: {reason}); the run continues without it"
                    )
                self._failed.add(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_started:
            folder = self._recorder.folder
            files = [path for name in _FILES if (path := folder / name).is_file()]
            end = RunEnd(self.summary, error, [*files, *sorted(folder.glob("*.png"))])
            self._call(lambda tracker: tracker.on_end(end), last=True)
