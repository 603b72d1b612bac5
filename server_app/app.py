"""ServerApp: reads Flower's run config, runs the experiment that it names."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from florets.conf.compose import NODES_OWN, compose
from florets.conf.overrides import quote
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, run_config_overrides
from florets.conf.saved import results_folder
from florets.conf.schema import Config
from florets.conf.validate import check_own_clients
from florets.reports.console import log, log_to_console
from florets.server_app.experiment import run_experiment
from florets.server_app.parcel_grid import ParcelGrid
from florets.server_app.resume import read_resume
from florets.strategies.base.federation import WrongNodeCount
from florets.studies.advise.methods import Question
from florets.studies.advise.study import answer
from florets.task.device import one_thread_for_good
from florets.task.imported import import_as_caller_did
from florets.task.partitions.own import OWN

# Flower has loaded NumPy before this package could ask for one thread.
one_thread_for_good()
import_as_caller_did()

app = ServerApp()

_INTERNAL = ("config-json", "run-folder")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment; what goes wrong becomes the run's status."""
    log_to_console()
    end_with_flower()
    try:
        if context.run_config.get("advise"):
            advise(grid, context.run_config)
        else:
            config, folder, resume = read_run_config(context.run_config)
            check_own_clients(config)
            grid = _with_parcels(grid, config)
            run_experiment(grid, config, folder, resume, by_flower=not context.run_config.get("config-json"))
    except WrongNodeCount as error:
        # Said once on a line of its own: Flower prints what is raised below tracebacks.
        log.error("%s", error)
        raise ConfigError(str(error)) from None
    finally:
        end_hung_clients()


def _with_parcels(grid: Grid, config: Config) -> Grid:
    """Return the grid on which one message to a node holds all of its clients' messages, where a run needs it."""
    if config.clients_per_node == 1:
        return grid
    hosts, online = -(-config.num_clients // config.clients_per_node), len(list(grid.get_node_ids()))
    log.info("%d clients are hosted by %d SuperNodes, of which %d are online", config.num_clients, hosts, online)
    return ParcelGrid(grid, config.clients_per_node, config.num_clients)


def advise(grid: Grid, run_config: Mapping[str, Any]) -> Path:
    """Answer on these nodes what `florets advise` answers, and return the folder with the page."""
    given = {name: value for name, value in run_config.items() if name != "advise"}
    if named := [name for name in (*_INTERNAL, "resume") if given.get(name)]:
        raise ConfigError([f"{name}: cannot be combined with advise=true; leave it out." for name in named])
    question = Question.of(run_config_overrides(given))
    _refuse_folder(question.base, question.overrides)
    check_own_clients(question.base)
    grid = _with_parcels(grid, question.base)
    _, folder = answer(question, lambda config, place: run_experiment(grid, config, place, by_flower=True))
    for line in (folder / "advice.txt").read_text(encoding="utf-8").splitlines():
        log.info("%s", line)
    return folder


def read_run_config(run_config: Mapping[str, Any]) -> tuple[Config, Path, bool]:
    """Return the experiment that a run config describes, the folder for its results, and whether it goes on there.

    `config-json` and `run-folder` come from `florets engine=flwr`, which has composed and checked everything; a
    Flower user gives the other keys, of which `resume` names the folder of an interrupted run.
    """
    if resumed := str(run_config.get("resume", "")):
        return _read_resume(run_config, Path(resumed)), Path(resumed), True
    if text := str(run_config.get("config-json", "")):
        config, overrides = config_from_json(text), []
    else:
        overrides = run_config_overrides(run_config)
        config = compose(overrides)
        _refuse_folder(config, overrides)
    given = str(run_config.get("run-folder", ""))
    return config, Path(given) if given else results_folder(config, overrides), False


def _refuse_folder(config: Config, overrides: Sequence[str]) -> None:
    """Raise ConfigError for a data folder that is none of the nodes' own."""
    given = [text for text in overrides if text.startswith("data_dir=")]
    if given and config.task.partition == OWN:
        raise ConfigError(f"{given[0]}: {NODES_OWN}")


def _read_resume(run_config: Mapping[str, Any], folder: Path) -> Config:
    if not folder.is_absolute():
        raise ConfigError(
            f"resume={folder}: must be an absolute path, because the app's working directory is the SuperLink's."
        )
    if text := str(run_config.get("config-json", "")):
        return config_from_json(text)
    found = read_resume([f"resume={quote(str(folder))}", *run_config_overrides(run_config)], Path("/"))
    if found is None:
        raise ConfigError(f"resume={folder}: cannot be read.")
    return found[0]


_LOOK_SECONDS = 1.0
_TASKS = ("flwr-simulation", "flwr-serverapp")
"""Processes that Flower starts for one run."""
_GRACE_SECONDS = 10.0
_AT_WORK = "ray::ClientAppActor.run"
"""Title of a process of Ray's while it works for a client; between two messages it ends with the class."""


def end_with_flower() -> None:
    """End this process as soon as the one that Flower started it from has gone; called at the run's start.

    Flower tells it so by a signal, which a ServerApp in a thread of the simulation's never sees: it would go on alone
    and hold the run's folder. Ended at any moment, the run can go on from there.
    """
    if Path(sys.argv[0]).stem in _TASKS:
        threading.Thread(target=_follow, args=(_parent(),), name="parent", daemon=True).start()


def _parent() -> int:
    # Flower names it; asking the system would miss one that went while this process was importing.
    named = sys.argv.index("--parent-pid") + 1 if "--parent-pid" in sys.argv else len(sys.argv)
    return int(sys.argv[named]) if named < len(sys.argv) else os.getppid()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def end_hung_clients() -> None:
    """End the client processes of Flower's simulation that do not end; called at the end of the run.

    Nobody waits for their replies any more but Flower itself, whose simulation does not end before them. Elsewhere
    this does nothing: a real SuperNode ends its own clients. Only processes of this machine are found.
    """
    if "ray" in sys.modules:
        # A daemon: it is gone with the simulation's process, as a rule long before it has looked once.
        threading.Thread(target=_end_clients, name="hung-clients", daemon=True).start()


def _end_clients() -> None:
    while True:
        time.sleep(_GRACE_SECONDS)
        _end_those_at_work()


def _end_those_at_work() -> None:
    # The extra for simulations brings it along.
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(_AT_WORK):
                log.warning("a client still hangs at the end of the run: ending its process %d", process.pid)
                process.kill()
