"""One experiment through `flwr run`: Flower's simulation, on a SuperLink of its own."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from florets.conf.run_config import config_to_json
from florets.conf.saved import results_folder
from florets.conf.schema import Config
from florets.reports.console import say
from florets.reports.summary import RunSummary
from florets.server_app.flower.app_folder import write_app
from florets.server_app.flower.superlink import NAME, SuperLink
from florets.server_app.resume.own_code import paths_of
from florets.server_app.resume.resume import refuse_interrupted
from florets.server_app.workers.ray_address import check_simulation
from florets.task import given

_POLL_SECONDS = 2.0


class FlowerRunError(RuntimeError):
    """Flower did not finish the run; the text says how it ended."""


def run(config: Config, overrides: Sequence[str]) -> RunSummary:
    """Run an experiment on Flower's simulation and return its summary, as the in-process engine does.

    Raises
    ------
    FlowerRunError
        If Flower's own word on the run (`flwr ls`) is not that it completed; `flwr run` exits with 0 either way.
    ConfigError
        If the environment names a Ray cluster that does not answer.
    """
    folder = results_folder(config, overrides)
    # The app does so too, but half a minute later.
    refuse_interrupted(folder, config)
    return run_in(folder, config)


def run_in(folder: Path, config: Config, resume: bool = False) -> RunSummary:
    """Run an experiment with its results in `folder`, or go on with the interrupted run that is there.

    Raises
    ------
    FlowerRunError
        As `run`.
    ConfigError
        If the environment names a Ray cluster that does not answer.
    """
    check_simulation()
    with given.for_children(paths_of(config)), SuperLink() as superlink:
        home = Path(superlink.environment["FLWR_HOME"])
        app, settings = write_app(home / "app"), home / "run.toml"
        # JSON texts are TOML texts.
        settings.write_text(
            f"config-json = {json.dumps(config_to_json(config))}\n"
            f"{'resume' if resume else 'run-folder'} = {json.dumps(str(folder))}\n",
            encoding="utf-8",
        )
        nodes = f"num-supernodes={config.num_clients} client-resources-num-cpus=1"
        command = ["run", str(app), NAME, "--federation-config", nodes, "--run-config", str(settings)]
        say(f"flwr {command[0]} {command[1]} --federation-config '{nodes}'", sys.stderr)
        started = superlink.flwr(*command, "--format", "json", capture=True)
        run_id = _run_id(started.stdout)
        if run_id is None:
            raise FlowerRunError(f"Flower did not take the run: {(started.stdout + started.stderr).strip()[-2000:]}")
        try:
            superlink.flwr("log", run_id, NAME, "--stream")
            status, details = _final_status(superlink, run_id)
        except BaseException:
            # Whatever interrupts the wait, Flower must not go on without anybody watching.
            superlink.flwr("stop", run_id, NAME, capture=True)
            raise
        if status != "finished:completed":
            raise FlowerRunError(f"the run ended as {status}: {details or superlink.log_end()}")
    return RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))


def _final_status(superlink: SuperLink, run_id: str) -> tuple[str, str]:
    """Wait until the run has finished: the log's stream can break off earlier."""
    while not (answer := _status(superlink, run_id))[0].startswith("finished"):
        time.sleep(_POLL_SECONDS)
    return answer


def _run_id(output: str) -> str | None:
    """Return the run's id from what `flwr run --format json` printed."""
    start = output.find("{")
    try:
        answer = json.loads(output[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        return None
    return str(answer["run-id"]) if answer.get("run-id") else None


def _status(superlink: SuperLink, run_id: str) -> tuple[str, str]:
    """Return how Flower says the run ended, and its details."""
    listed = superlink.flwr("ls", NAME, "--run-id", run_id, "--format", "json", capture=True)
    try:
        (run,) = json.loads(listed.stdout)["runs"]
    except (json.JSONDecodeError, KeyError, ValueError) as error:
        raise FlowerRunError(
            f"`flwr ls` gave no answer about run {run_id}: {listed.stdout}{listed.stderr}"
        ) from error
    return str(run["status"]), str(run.get("status-details", ""))
