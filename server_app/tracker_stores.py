"""The built-in trackers: TensorBoard and MLflow."""

import contextlib
import logging
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.reports.summary import RoundLine
from florets.server_app import tracker

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient
    from torch.utils.tensorboard.writer import SummaryWriter

log = logging.getLogger("florets")

_TENSORBOARD = "tensorboard"
_FINAL = ("final/accuracy", "final/loss", "final/ari")


class TensorBoardTracker:
    """Write to ``<results_dir>/tensorboard/<name of the run>``.

    TensorBoard reads the folder while the run goes on. The configuration is in its tab HParams, the pictures are in
    Images. It holds no other files: Text names the folder with the report.
    """

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None
        self._run: tracker.RunStart | None = None
        self._last_round = 0

    def on_start(self, run: tracker.RunStart) -> None:
        """Open the run's folder; a new run replaces what an earlier one left there."""
        # It takes a second that runs without it need not spend.
        from torch.utils.tensorboard.writer import SummaryWriter

        place = run.recall(_TENSORBOARD) if run.done_rounds else None
        folder = run.results_dir / _TENSORBOARD / run.name if place is None else Path(place)
        if not run.done_rounds:
            shutil.rmtree(folder, ignore_errors=True)
        # Events of rounds that the run goes through again are dropped by the reader.
        again = run.done_rounds + 1 if run.done_rounds else None
        self._writer = SummaryWriter(str(folder), purge_step=again, flush_secs=5)
        self._run, self._last_round = run, run.done_rounds
        run.remember(_TENSORBOARD, str(folder))
        listed = "\n".join(f"| {name} | {value} |" for name, value in tracker.params(run.params).items())
        self._writer.add_text("configuration", f"| key | value |\n|---|---|\n{listed}", run.done_rounds)
        self._writer.add_text("folder", str(run.folder), run.done_rounds)
        self._write_params({})

    def on_round(self, line: RoundLine, clients: tracker.ClientFigures) -> None:
        """Add a point to each curve."""
        assert self._writer is not None
        self._last_round = line["round"]
        for name, value in {**tracker.round_figures(line), **tracker.curves(clients)}.items():
            self._writer.add_scalar(name, value, self._last_round)

    def on_end(self, end: tracker.RunEnd) -> None:
        """Add the pictures and the final figures, and close the files."""
        if self._writer is None:
            return
        if end.summary is not None:
            final = tracker.final_figures(end.summary)
            for name, value in final.items():
                self._writer.add_scalar(name, value, self._last_round)
            self._write_params({name: final[name] for name in _FINAL if name in final})
        for path in end.files:
            if path.suffix == ".png":
                self._add_picture(path)
        self._writer.close()

    def _add_picture(self, path: Path) -> None:
        import numpy as np
        from PIL import Image

        assert self._writer is not None
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image(path.stem, pixels, self._last_round, dataformats="HWC")

    def _write_params(self, final: dict[str, float]) -> None:
        """Write the configuration for the tab HParams, which wants the names of the final figures with it."""
        # `SummaryWriter.add_hparams` would make a second folder for each run.
        from torch.utils.tensorboard.summary import hparams

        assert self._writer is not None
        assert self._run is not None
        writer = self._writer._get_file_writer()  # type: ignore[no-untyped-call]
        for summary in hparams(tracker.params(self._run.params), final):  # type: ignore[no-untyped-call]
            writer.add_summary(summary)
        self._writer.flush()


_MLFLOW = "mlflow"
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

    def on_start(self, run: tracker.RunStart) -> None:
        """Make the run in the store, or take up again the one that was interrupted."""
        # Parallel jobs of a sweep would make the store's tables several times.
        with _held(run.results_dir), warnings.catch_warnings():
            # MLflow's own, of the libraries that it uses: the user can do nothing about them.
            warnings.simplefilter("ignore")
            self._client = _client(run.results_dir)
            tags = {"florets.folder": str(run.folder)}
            known = run.recall(_MLFLOW) if run.done_rounds else None
            if known is None or not self._take_up(known, tags, run.params):
                experiment = _experiment(self._client, run)
                self._id = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
                self._log_params(run.params)
            run.remember(_MLFLOW, self._id)
        self._last_round = run.done_rounds

    def _take_up(self, run_id: str, tags: Mapping[str, str], values: Mapping[str, Any]) -> bool:
        """Go on under an id; False where the store does not have it, as when the results were moved."""
        from mlflow.exceptions import MlflowException

        assert self._client is not None
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            log.warning("MLflow does not know the run %s (%s): a new one was created", run_id, error)
            return False
        self._id = run_id
        self._client.update_run(run_id, status="RUNNING")
        # MLflow's parameters never change: where a resumed run differs, tags say so.
        before = run.data.params
        changed = {name: tracker.short_text(value) for name, value in tracker.params(values).items()}
        changed = {name: text for name, text in changed.items() if before.get(name) != text}
        for name, text in {**tags, **{f"resumed.{name}": text for name, text in changed.items()}}.items():
            self._client.set_tag(run_id, name, text)
        # Rounds after the last checkpoint are run again, with equal figures; a store removes none.
        self._known_rounds = int(run.data.metrics.get("round", 0))
        return True

    def _log_params(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        assert self._client is not None
        named = [Param(name, tracker.short_text(value)) for name, value in tracker.params(values).items()]
        for start in range(0, len(named), _MOST_PARAMS):
            self._client.log_batch(self._id, params=named[start : start + _MOST_PARAMS])

    def on_round(self, line: RoundLine, clients: tracker.ClientFigures) -> None:
        """Add a point to each curve."""
        self._last_round = line["round"]
        if self._last_round > self._known_rounds:
            self._log_metrics({**tracker.round_figures(line), **tracker.curves(clients)}, self._last_round)

    def _log_metrics(self, figures: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        assert self._client is not None
        now = time.time_ns() // 1_000_000
        named = [Metric(name, value, now, step) for name, value in figures.items()]
        for start in range(0, len(named), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=named[start : start + _MOST_METRICS])

    def on_end(self, end: tracker.RunEnd) -> None:
        """Add the final figures and the files, and say how the run ended."""
        if self._client is None or not self._id:
            return
        if end.summary is not None:
            self._log_metrics(tracker.final_figures(end.summary), self._last_round)
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

    # MLflow's store of plain files is no longer maintained, and refused by its current version.
    return str(URL.create("sqlite", database=str(results_dir / "mlflow.db")).render_as_string())


def _experiment(client: "MlflowClient", run: tracker.RunStart) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.experiment
    if (found := client.get_experiment_by_name(name)) is not None:
        return str(found.experiment_id)
    place = None if os.environ.get(_STORE) else (run.results_dir / "mlflow_artifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=place))


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
