"""The built-in trackers, TensorBoard and MLflow, and those of a run by their names."""

import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.conf.extras import require
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.conf.validate import tracker_names
from florets.reports.scores import FIGURES
from florets.reports.summary import RoundLine, RunSummary, round_seconds
from florets.server_app.recorder import Recorder
from florets.server_app.tracker import RunEnd, RunStart, Tracker, tracked
from florets.task.imported import imported

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient
    from torch.utils.tensorboard.writer import SummaryWriter

_TENSORBOARD = "tensorboard"
_LONGEST = 500


def round_figures(line: RoundLine) -> dict[str, float]:
    """Return the figures of a round that are known, by name: ``ari``, ``seconds/train``, ``scores/loss/q90``, ..."""
    named: dict[str, float | None] = {name: value for name, value in line.items() if isinstance(value, int | float)}
    named |= {"rejected": len(line["rejected"]), "seconds": round_seconds(line)}
    named |= {f"seconds/{part}": seconds for part, seconds in line["seconds"].items() if part != "total"}
    named |= {f"replies/{kind}": number for kind, number in line["replies"].items()}
    named |= {
        f"scores/{score}/{name}": figures[name] for score, figures in line["metrics"].items() for name in FIGURES
    }
    return {name: float(value) for name, value in named.items() if value is not None}


def final_figures(summary: RunSummary) -> dict[str, float]:
    """Return the figures at the end of a run that are numbers: ``final/accuracy``, ``final/bytes_down``, ..."""
    return {
        f"final/{name.removeprefix('final_')}": float(value)
        for name, value in vars(summary).items()
        if isinstance(value, int | float) and name not in ("seed", "rounds")
    }


def parameters(values: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return parameters as stores take them, all but numbers as a short text; what is null or empty is left out."""
    return {
        name: value if isinstance(value, bool | int | float) else str(value)[:_LONGEST]
        for name, value in values.items()
        if value not in (None, "", [], {})
    }


class TensorBoardTracker:
    """Write to ``<results_dir>/tensorboard/<name of the run>``, which TensorBoard reads while the run goes on.

    The configuration and the folder of the report are in its tab Text.
    """

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None

    def on_start(self, run: RunStart) -> None:
        """Open the run's folder; a new run replaces what an earlier one left there."""
        # It takes a second that runs without it need not spend.
        from torch.utils.tensorboard.writer import SummaryWriter

        folder = run.results_dir / _TENSORBOARD / run.name
        if not run.done_rounds:
            shutil.rmtree(folder, ignore_errors=True)
        # Events of rounds that the run goes through again are dropped by the reader.
        again = run.done_rounds + 1 if run.done_rounds else None
        self._writer, self._last_round = SummaryWriter(str(folder), purge_step=again, flush_secs=5), run.done_rounds
        self._writer.add_text("folder", str(run.folder), run.done_rounds)
        lines = (f"    {name}: {value}" for name, value in parameters(run.params).items())
        self._writer.add_text("configuration", "\n".join(lines), run.done_rounds)

    def on_round(self, line: RoundLine) -> None:
        """Add a point to each curve."""
        self._last_round = line["round"]
        self._write(round_figures(line))

    def on_end(self, end: RunEnd) -> None:
        """Add the final figures, and close the files."""
        if self._writer is None:
            return
        if end.summary is not None:
            self._write(final_figures(end.summary))
        self._writer.close()

    def _write(self, figures: Mapping[str, float]) -> None:
        assert self._writer is not None
        for name, value in figures.items():
            self._writer.add_scalar(name, value, self._last_round)


_MLFLOW = "mlflow"
_STORE = "MLFLOW_TRACKING_URI"
# Most that one call takes.
_MOST_PARAMS = 100


class MlflowTracker:
    """A run of MLflow for each run, in the experiment that has the preset's name."""

    def __init__(self) -> None:
        self._client: MlflowClient | None = None
        self._id = ""
        self._known_rounds = 0

    def on_start(self, run: RunStart) -> None:
        """Make the run in the store, or take up again the one that was interrupted."""
        from mlflow.entities import Param

        with warnings.catch_warnings():
            # MLflow's own, of the libraries that it uses: the user can do nothing about them.
            warnings.simplefilter("ignore")
            self._client = _client(run.results_dir)
            experiment, tag = _experiment(self._client, run), "florets.folder"
            mine = f"tags.`{tag}` = '{run.folder}'"
            if run.done_rounds and (known := self._client.search_runs([experiment], mine, max_results=1)):
                self._id = known[0].info.run_id
                self._client.update_run(self._id, status="RUNNING")
                # Rounds after the last checkpoint are run again, with equal figures; a store removes none.
                self._known_rounds = int(known[0].data.metrics.get("round", 0))
            else:
                made = self._client.create_run(experiment, tags={tag: str(run.folder)}, run_name=run.name)
                self._id = made.info.run_id
                named = [Param(name, str(value)) for name, value in parameters(run.params).items()]
                for start in range(0, len(named), _MOST_PARAMS):
                    self._client.log_batch(self._id, params=named[start : start + _MOST_PARAMS])
        self._last_round = run.done_rounds

    def on_round(self, line: RoundLine) -> None:
        """Add a point to each curve."""
        self._last_round = line["round"]
        if self._last_round > self._known_rounds:
            self._write(round_figures(line))

    def _write(self, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        assert self._client is not None
        now = time.time_ns() // 1_000_000
        self._client.log_batch(
            self._id, metrics=[Metric(name, value, now, self._last_round) for name, value in figures.items()]
        )

    def on_end(self, end: RunEnd) -> None:
        """Add the final figures and the files, and say how the run ended."""
        if self._client is None or not self._id:
            return
        if end.summary is not None:
            self._write(final_figures(end.summary))
        for path in end.files:
            self._client.log_artifact(self._id, str(path))
        failed = "FAILED" if isinstance(end.error, Exception) else "KILLED"
        self._client.set_terminated(self._id, "FINISHED" if end.error is None else failed)


def _client(results_dir: Path) -> "MlflowClient":
    # Only a server that the user names is called.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # It reports the tables that it makes in the middle of the progress bar.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    from mlflow.tracking import MlflowClient

    results_dir.mkdir(parents=True, exist_ok=True)
    return MlflowClient(os.environ.get(_STORE) or default_store(results_dir))


def default_store(results_dir: Path) -> str:
    """Return the address of the store in a results folder."""
    from sqlalchemy import URL

    # MLflow's store of plain files is no longer maintained, and refused by its current version.
    return str(URL.create("sqlite", database=str(results_dir / "mlflow.db")).render_as_string())


def _experiment(client: "MlflowClient", run: RunStart) -> str:
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.experiment
    if (found := client.get_experiment_by_name(name)) is None:
        place = None if os.environ.get(_STORE) else (run.results_dir / "mlflow_artifacts").as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=place))
        except MlflowException:
            # Another job of the same sweep was first.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


_CALLS = ("on_start", "on_round", "on_end")
_BUILT_IN: Mapping[str, Callable[[], Tracker]] = {_TENSORBOARD: TensorBoardTracker, _MLFLOW: MlflowTracker}


def tracking_of(config: Config) -> Callable[[Recorder, int, int], AbstractContextManager[None]]:
    """Return `tracked` for the trackers of a run; ConfigError where one is none or lacks its extra."""
    return partial(tracked, {name: _make(name) for name in tracker_names(config.tracker)}, config)


def _make(name: str) -> Tracker:
    if name in _BUILT_IN:
        require(name, f"tracker={name}")
        return _BUILT_IN[name]()
    try:
        made: Tracker = imported(f"tracker={name}", name)()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:  # it is anybody's code
        raise ConfigError(
            f"tracker={name}: cannot be created without arguments ({type(error).__name__}: {error}); correct "
            f"the class."
        ) from error
    if missing := [call for call in _CALLS if not callable(getattr(made, call, None))]:
        raise ConfigError(f"tracker={name}: a tracker has {', '.join(_CALLS)}; it lacks {', '.join(missing)}.")
    return made
