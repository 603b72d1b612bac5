"""The tracker of MLflow: a SQLite store in the results folder, or the server that MLFLOW_TRACKING_URI names."""

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.reports.summary import RoundLine
from florets.server_app.trackers.figures import curves, final_figures, params, round_figures, short_text
from florets.server_app.trackers.protocol import ClientFigures, RunEnd, RunStart, read_ids, write_id

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

log = logging.getLogger("florets")

NAME = "mlflow"
_STORE = "MLFLOW_TRACKING_URI"
# Most that one call takes.
_MOST_PARAMS, _MOST_METRICS = 100, 1000


class MlflowTracker:
    """A run of MLflow for each run, in the experiment that has the preset's name; a sweep's have a common parent."""

    def __init__(self) -> None:
        self._client: MlflowClient | None = None
        self._id = ""
        self._known_rounds = 0
        self._last_round = 0

    def on_start(self, run: RunStart) -> None:
        """Make the run in the store, or take up again the one that was interrupted."""
        # Parallel jobs of a sweep would make the store's tables and their parent several times.
        with _held(run.results_dir), warnings.catch_warnings():
            # MLflow's own, of the libraries that it uses: the user can do nothing about them.
            warnings.simplefilter("ignore")
            self._client = _client(run.results_dir)
            parent = None if run.sweep is None else _parent(self._client, run, run.sweep)
            tags = {"mlflow.parentRunId": parent} if parent else {}
            tags["florets.folder"] = str(run.folder)
            known = run.recall(NAME) if run.done_rounds else None
            if known is None or not self._take_up(known, tags, run.params):
                experiment = _experiment(self._client, run)
                self._id = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
                self._log_params(run.params)
            run.remember(NAME, self._id)
        self._last_round = run.done_rounds

    def _take_up(self, run_id: str, tags: Mapping[str, str], values: Mapping[str, Any]) -> bool:
        """Go on under an id; False where the store does not have it, as when the results were moved."""
        from mlflow.exceptions import MlflowException

        assert self._client is not None
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            log.warning("MLflow does not know the run %s (%s): it has a new one there", run_id, error)
            return False
        self._id = run_id
        self._client.update_run(run_id, status="RUNNING")
        # MLflow's parameters never change: where a resumed run differs, tags say so.
        before = run.data.params
        changed = {name: short_text(value) for name, value in params(values).items()}
        changed = {name: text for name, text in changed.items() if before.get(name) != text}
        for name, text in {**tags, **{f"resumed.{name}": text for name, text in changed.items()}}.items():
            self._client.set_tag(run_id, name, text)
        # Rounds after the last checkpoint are run again, with equal figures; a store removes none.
        self._known_rounds = int(run.data.metrics.get("round", 0))
        return True

    def _log_params(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        assert self._client is not None
        named = [Param(name, short_text(value)) for name, value in params(values).items()]
        for start in range(0, len(named), _MOST_PARAMS):
            self._client.log_batch(self._id, params=named[start : start + _MOST_PARAMS])

    def on_round(self, line: RoundLine, clients: ClientFigures) -> None:
        """Add a point to each curve."""
        self._last_round = line["round"]
        if self._last_round > self._known_rounds:
            self._log_metrics({**round_figures(line), **curves(clients)}, self._last_round)

    def _log_metrics(self, figures: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        assert self._client is not None
        now = time.time_ns() // 1_000_000
        named = [Metric(name, value, now, step) for name, value in figures.items()]
        for start in range(0, len(named), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=named[start : start + _MOST_METRICS])

    def on_end(self, end: RunEnd) -> None:
        """Add the final figures and the files, and say how the run ended."""
        if self._client is None or not self._id:
            return
        if end.summary is not None:
            self._log_metrics(final_figures(end.summary), self._last_round)
        for path in end.files:
            self._client.log_artifact(self._id, str(path))
        self._client.set_terminated(self._id, _status(end.error))


def _status(error: BaseException | None) -> str:
    if error is None:
        return "FINISHED"
    return "FAILED" if isinstance(error, Exception) else "KILLED"


def _client(results_dir: Path) -> "MlflowClient":
    # Only a server that the user names is called.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # It reports the tables that it makes in the middle of the progress bar.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    from mlflow.tracking import MlflowClient

    return MlflowClient(os.environ.get(_STORE) or default_store(results_dir))


def default_store(results_dir: Path) -> str:
    """Return the address of the store in a results folder."""
    from sqlalchemy import URL

    # MLflow's store of plain files is no longer maintained, and refused by its present version.
    return str(URL.create("sqlite", database=str(results_dir / "mlflow.db")).render_as_string())


def _experiment(client: "MlflowClient", run: RunStart) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.experiment
    if (found := client.get_experiment_by_name(name)) is not None:
        return str(found.experiment_id)
    place = None if os.environ.get(_STORE) else (run.results_dir / "mlflow_artifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=place))


def _parent(client: "MlflowClient", run: RunStart, sweep: Path) -> str:
    """Return the id of the run that all jobs of a sweep belong to; the first of them makes it."""
    if (known := read_ids(sweep).get(NAME)) is not None:
        return known
    tags = {"florets.folder": str(sweep)}
    made = client.create_run(_experiment(client, run), tags=tags, run_name=f"sweep {sweep.name}")
    write_id(sweep, NAME, made.info.run_id)
    return str(made.info.run_id)


def end_parent(sweep: Path, results_dir: Path, files: Sequence[Path], interrupted: bool = False) -> None:
    """Add a sweep's summary and pictures to the parent of its runs, where there is one, and close it."""
    if (parent := read_ids(sweep).get(NAME)) is None:
        return
    client = _client(results_dir)
    for path in files:
        client.log_artifact(parent, str(path))
    client.set_terminated(parent, "KILLED" if interrupted else "FINISHED")


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Let one process at a time run the block; systems that cannot lock a folder do not wait."""
    handle = None
    try:
        import fcntl  # not on Windows

        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
