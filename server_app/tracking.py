"""All trackers of a run: made from their names and called in turn; their failures do not end the run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from florets.conf.extras import require
from florets.conf.overrides import dotted
from florets.conf.problems import ConfigError
from florets.conf.schema import Config, as_plain
from florets.conf.validate import tracker_names
from florets.reports.clients import CLIENTS_OVER_ROUNDS
from florets.reports.summary import RoundLine, RunSummary
from florets.server_app.recorder import Recorder
from florets.server_app.tracker import MOST_CLIENTS, RunEnd, RunStart, Tracker, client_figures
from florets.server_app.tracker_stores import MlflowTracker, TensorBoardTracker
from florets.strategies.base.report import RoundReport
from florets.task.imported import imported

_BUILT_IN: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
}
_CALLS = ("on_start", "on_round", "on_end")
_FILES = (
    *("report.html", "config.yaml", "summary.json", "clients.csv"),
    *(CLIENTS_OVER_ROUNDS, "loss_matrix.csv", "run.log"),
)


def make_trackers(config: Config, objects: Sequence[Tracker] = ()) -> dict[str, Tracker]:
    """Return the trackers of a run by name: those of the key `tracker`, and the given objects.

    Raises
    ------
    ConfigError
        If an extra is not installed, or what an import path leads to, or an object, is no tracker.
    """
    found = {name: _make(name) for name in tracker_names(config.tracker)}
    for number, one in enumerate(objects, 1):
        name = type(one).__name__
        found[name if name not in found else f"{name} {number}"] = _checked(name, one)
    return found


def _make(name: str) -> Tracker:
    if name in _BUILT_IN:
        require(name, f"tracker={name}")
        return _BUILT_IN[name]()
    try:
        made = imported(f"tracker={name}", name)()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:  # it is anybody's code
        raise ConfigError(
            f"tracker={name}: cannot be created without arguments ({type(error).__name__}: {error}); correct "
            f"the class."
        ) from error
    return _checked(name, made)


def _checked(name: str, made: Tracker) -> Tracker:
    if missing := [call for call in _CALLS if not callable(getattr(made, call, None))]:
        raise ConfigError(f"tracker={name}: a tracker has {', '.join(_CALLS)}; it lacks {', '.join(missing)}.")
    return made


class Tracking:
    """Call all trackers of a run; leaving the block passes on how it ended.

    One that fails, at the start or later, is named in a warning and left out of further rounds; `on_end` is still
    called, so that it can close what it has open.
    """

    def __init__(self, trackers: Mapping[str, Tracker], recorder: Recorder) -> None:
        self._trackers = trackers
        self._recorder = recorder
        self._folder = recorder.folder
        self._started: dict[str, Tracker] = {}
        self._failed: set[str] = set()
        self._too_many = False
        self.summary: RunSummary | None = None
        """Set once the run is finished."""

    def start(self, config: Config, num_rounds: int, done_rounds: int) -> None:
        """Pass on what is run."""
        if not self._trackers:
            return
        root = Path(config.results_dir).expanduser().absolute()
        inside = self._folder.is_relative_to(root)
        run = RunStart(
            folder=self._folder,
            results_dir=root,
            name=self._folder.relative_to(root).as_posix() if inside else self._folder.name,
            experiment=config.experiment,
            params=dict(dotted(as_plain(config))),
            num_rounds=num_rounds,
            done_rounds=done_rounds,
        )
        for name, tracker in self._trackers.items():
            self._started[name] = tracker
            self._call(name, lambda tracker=tracker: tracker.on_start(run))  # type: ignore[misc]

    def round(self, line: RoundLine, report: RoundReport) -> None:
        """Pass a finished round on."""
        going = {name: tracker for name, tracker in self._started.items() if name not in self._failed}
        if not going:
            return
        clients = client_figures(report)
        if len(clients) > MOST_CLIENTS and not self._too_many:
            self._too_many = True
            self._recorder.note(
                f"more than {MOST_CLIENTS} clients: tensorboard and mlflow get quantiles over them, and no "
                "curves of single clients"
            )
        for name, tracker in going.items():
            self._call(name, lambda tracker=tracker: tracker.on_round(line, clients))  # type: ignore[misc]

    def _call(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
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
        pictures = sorted(self._folder.glob("*.png"))
        files = [path for name in _FILES if (path := self._folder / name).is_file()]
        end = RunEnd(self.summary, error, [*files, *pictures])
        for name, tracker in self._started.items():
            self._call(name, lambda tracker=tracker: tracker.on_end(end))  # type: ignore[misc]
