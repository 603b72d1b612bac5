"""Trackers of a run: their protocol, what they are given, and calls of which no failure ends the run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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


@contextmanager
def tracked(
    trackers: Mapping[str, Tracker], config: Config, recorder: Recorder, num_rounds: int, done_rounds: int
) -> Iterator[None]:
    """Within the block tell all trackers of a run's start, of each of its rounds and of its end.

    One that fails, at the start or later, is named in a warning and left out of further rounds; `on_end` is still
    called, so that it can close what it has open.
    """
    failed: set[str] = set()

    def tell(call: Callable[[Tracker], None], last: bool = False) -> None:
        for name, tracker in trackers.items():
            if name in failed and not last:
                continue
            try:
                call(tracker)
            except Exception as error:  # a tracker may fail in any way, and no result depends on it
                if name not in failed:
                    reason = " ".join(str(error).split())[:300]
                    recorder.warn(
                        f"tracker={name} failed ({type(error).__name__}: {reason}); the run continues without it"
                    )
                failed.add(name)

    folder, root = recorder.folder, Path(config.results_dir).expanduser().absolute()
    run = RunStart(
        folder=folder,
        results_dir=root,
        name=folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name,
        experiment=config.experiment,
        params=dict(dotted(as_plain(config))),
        num_rounds=num_rounds,
        done_rounds=done_rounds,
    )
    tell(lambda tracker: tracker.on_start(run))
    recorder.followers.append(lambda line: tell(lambda tracker: tracker.on_round(line)))
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        files = [path for name in _FILES if (path := folder / name).is_file()]
        end = RunEnd(recorder.summary, error, [*files, *sorted(folder.glob("*.png"))])
        tell(lambda tracker: tracker.on_end(end), last=True)
