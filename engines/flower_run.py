"""One experiment through `flwr run`: Flower's simulation, on a SuperLink of its own."""

import json
import os
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from florets.conf.consent import import_paths
from florets.conf.extras import PROJECT
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_to_json
from florets.conf.schema import OWN as OWN_DATA
from florets.conf.schema import Config, as_plain
from florets.engines import flower_processes
from florets.reports.console import say
from florets.reports.summary import RunSummary
from florets.server_app.own_code import paths_of
from florets.server_app.resume import refuse_interrupted
from florets.task import given

NAME = "own"
"""Name of the connection in the SuperLink's own Flower configuration."""

_START_SECONDS = 180.0
"""Seconds of a start; a few on an idle machine, but more than a minute where others keep its cores busy."""

_LOG_LINES = 20

RAY_ADDRESS = "RAY_ADDRESS"
"""Ray's own variable: the cluster on which Flower's simulation has the clients' work done, ``<host>:<port>``."""
_NO_CLUSTER = "local"
"""Ray's word for a Ray of the process's own."""


class FlowerRunError(RuntimeError):
    """Flower refused a command or did not finish the run; the text says why."""


def answer_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Return what a command of Flower's has answered in JSON; FlowerRunError, with its text, where it refuses."""
    answer = None
    with suppress(ValueError):
        answer = json.loads(done.stdout[done.stdout.index("{") :])
    if isinstance(answer, dict) and "error-message" not in answer:
        return answer
    # It exits with 0 even so, and writes the reason where the answer would be.
    said = str(answer["error-message"]) if isinstance(answer, dict) else done.stdout + done.stderr
    raise FlowerRunError(said.strip()[-2000:] or "no answer")


class Connection:
    """A SuperLink, by its name in Flower's configuration."""

    def __init__(self, name: str, environment: Mapping[str, str], log: Path | None = None) -> None:
        self.name, self.environment, self._log = name, environment, log

    def flwr(self, *arguments: str, capture: bool = False) -> "subprocess.CompletedProcess[str]":
        """Run Flower's command line against this SuperLink."""
        # It has signs that not every terminal has.
        encoding = "utf-8" if capture else sys.stdout.encoding or "utf-8"
        return subprocess.run(
            [flower_processes.command("flwr"), *arguments],
            env={**self.environment, "PYTHONIOENCODING": f"{encoding}:replace"},
            encoding=encoding,
            errors="replace",
            capture_output=capture,
            check=False,
        )

    def answer(self, *arguments: str) -> dict[str, Any]:
        """Return what a command of Flower's answers in JSON, as `answer_of`."""
        return answer_of(self.flwr(*arguments, "--format", "json", capture=True))

    def log_end(self) -> str:
        """Return the last lines of the SuperLink's log, where this process has it."""
        if self._log is None:
            return "its SuperLink's log says why"
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])


@contextmanager
def own_superlink() -> Iterator[Connection]:
    """Start a SuperLink for simulations on a free port of this machine, and end it with the block.

    It gets a Flower home of its own and an empty working directory, because simulated clients import from the folder
    in which the SuperLink was started before they look at the app that was sent. Its simulations are on a Ray of
    their own where the environment does not name a cluster (``RAY_ADDRESS``). RuntimeError with the end of its log if
    it ends, or does not answer within three minutes.
    """
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="florets-superlink-", ignore_cleanup_errors=True)
        root = Path(stack.enter_context(folder))
        home, work = root / "flwr", root / "empty"
        home.mkdir()
        work.mkdir()
        port = flower_processes.free_port()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        # Else Ray goes by this machine's last cluster, and waits for ever if that was killed.
        ray = {RAY_ADDRESS: os.environ.get(RAY_ADDRESS) or _NO_CLUSTER}
        found = Connection(NAME, {**flower_processes.environment(home), **ray}, root / "superlink.log")
        with (root / "superlink.log").open("wb") as log:
            arguments = ["--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
            process = flower_processes.start("flower-superlink", arguments, work, found.environment, log)
        stack.callback(flower_processes.end, process)
        if not flower_processes.wait_for_port(process, port, _START_SECONDS, http=True):
            ended = process.poll() is not None
            why = "ended at once" if ended else f"did not answer within {_START_SECONDS:.0f} s; is the machine busy?"
            raise RuntimeError(f"the SuperLink {why}\n{found.log_end()}")
        yield found


_POLL_SECONDS = 2.0


def write_app(folder: Path) -> Path:
    """Make a folder that `flwr run` takes as the app, and return it.

    It holds no code: every process on this machine imports the package that this one has imported.
    """
    folder.mkdir(exist_ok=True)
    described = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    app = described["tool"]["flwr"]["app"]
    tables = {
        "project": {name: described["project"][name] for name in ("name", "version")},
        "tool.flwr.app": {"publisher": app["publisher"]},
        "tool.flwr.app.components": app["components"],
        "tool.flwr.app.config": app["config"],
    }
    # JSON texts, numbers and truth values are TOML's.
    lines = (
        line
        for name, table in tables.items()
        for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items()))
    )
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def app_to_send(folder: Path) -> Path:
    """Return the app for other machines: the repository, whose code goes along, else one without code in `folder`."""
    return PROJECT if (PROJECT / "florets").is_dir() else write_app(folder)


def run_in(folder: Path, config: Config, resume: bool = False) -> RunSummary:
    """Run an experiment with its results in `folder`, or go on with the interrupted run that is there.

    FlowerRunError where Flower's own word on the run (`flwr ls`) is not that it completed: `flwr run` exits with 0
    either way.
    """
    if config.superlink:
        _refuse_own_code(config)
    if not resume:
        # The app does so too, but half a minute later.
        refuse_interrupted(folder, config)
    with TemporaryDirectory(prefix="florets-run-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        if config.superlink:
            found = Connection(config.superlink, flower_processes.environment(None))
            _follow(found, app_to_send(place / "app"), place, folder, config, resume)
        else:
            with given.for_children(paths_of(config)), own_superlink() as own:
                _follow(own, write_app(place / "app"), place, folder, config, resume)
    try:
        return RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FlowerRunError(
            f"the run has completed; its results are on the SuperLink's machine, in {folder}"
        ) from error


def _refuse_own_code(config: Config) -> None:
    """Raise ConfigError for objects of the caller's, which somebody else's processes do not have."""
    for key, paths in import_paths(as_plain(config)).items():
        if any(map(given.is_given, paths.split(","))):
            raise ConfigError(
                f"{key}={paths}: superlink={config.superlink} runs in processes that somebody else started, to which "
                "an object of this process is not sent. Put the code into an app (`florets app <folder>`), which "
                "`flwr run` sends along, or into a package that is installed there and here; or leave superlink out."
            )


def _follow(superlink: Connection, app: Path, place: Path, folder: Path, config: Config, resume: bool) -> None:
    """Submit a run, show its log and return once it has completed."""
    settings = place / "run.toml"
    # JSON texts are TOML texts.
    settings.write_text(
        f"config-json = {json.dumps(config_to_json(config))}\n"
        f"{'resume' if resume else 'run-folder'} = {json.dumps(str(folder))}\n",
        encoding="utf-8",
    )
    command = ["run", str(app), superlink.name]
    if config.task.partition != OWN_DATA:
        hosts = -(-config.num_clients // config.clients_per_node)
        command += ["--federation-config", f"num-supernodes={hosts} client-resources-num-cpus=1"]
    say(f"flwr {shlex.join(command)}", sys.stderr)
    try:
        run_id = str(superlink.answer(*command, "--run-config", str(settings))["run-id"])
    except (FlowerRunError, KeyError) as error:
        raise FlowerRunError(f"Flower rejected the run: {error}") from error
    try:
        superlink.flwr("log", run_id, superlink.name, "--stream")
        # The log's stream can break off before the run has finished.
        while not (ended := _status(superlink, run_id))[0].startswith("finished"):
            time.sleep(_POLL_SECONDS)
    except BaseException:
        # Whatever interrupts the wait, Flower must not go on without anybody watching.
        superlink.flwr("stop", run_id, superlink.name, capture=True)
        raise
    if ended[0] != "finished:completed":
        raise FlowerRunError(f"the run ended as {ended[0]}: {ended[1] or superlink.log_end()}")


def _status(superlink: Connection, run_id: str) -> tuple[str, str]:
    """Return how Flower says the run ended, and its details."""
    try:
        (run,) = superlink.answer("ls", superlink.name, "--run-id", run_id)["runs"]
    except (FlowerRunError, KeyError, ValueError) as error:
        raise FlowerRunError(f"`flwr ls` did not answer about run {run_id}: {error}") from error
    return str(run["status"]), str(run.get("status-details", ""))
