"""A SuperLink of one's own, for the time of one run: nothing of another run's can leak in."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

import psutil

NAME = "own"
"""Name of the connection in the SuperLink's own Flower configuration."""

_START_SECONDS = 60.0
_STOP_SECONDS = 15.0

_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Without it every run builds a second Python environment.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    # Actors of one run share the machine's cores: one thread each.
    "OMP_NUM_THREADS": "1",
    # Without it Ray prints a warning about a default that it will change.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class SuperLink:
    """Start a SuperLink for simulations on a free port of this machine, and end it with the block.

    It gets a Flower home of its own and an empty working directory, because simulated clients import from the folder
    in which the SuperLink was started before they look at the app that was sent.

    Raises
    ------
    RuntimeError
        If it does not answer within a minute; the text holds the end of its log.
    """

    def __enter__(self) -> "SuperLink":
        self._folder = tempfile.TemporaryDirectory(prefix="florets-", ignore_cleanup_errors=True)
        root = Path(self._folder.name)
        home, work = root / "flwr", root / "empty"
        home.mkdir()
        work.mkdir()
        port = _free_port()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        scripts = str(Path(sys.executable).parent)
        # Flower finds its own commands through PATH.
        path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
        self.environment = {**os.environ, **_ENVIRONMENT, "FLWR_HOME": str(home), "PATH": path}
        self._log = root / "superlink.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    f"{scripts}/flower-superlink",
                    "--insecure",
                    "--simulation",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(port),
                ],
                cwd=work,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait(port)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def flwr(self, *arguments: str, capture: bool = False) -> "subprocess.CompletedProcess[str]":
        """Run Flower's command line against this SuperLink."""
        command = [str(Path(sys.executable).parent / "flwr"), *arguments]
        return subprocess.run(command, env=self.environment, text=True, capture_output=capture, check=False)

    def log_end(self, lines: int = 20) -> str:
        """Return the last lines of the SuperLink's log."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"the SuperLink did not start:\n{self.log_end()}")

    def _stop(self) -> None:
        # By process id, and only what descends from the process started here: another SuperLink on this machine is
        # somebody else's. No signal to a group finds them all: the simulation and Ray have sessions of their own.
        descendants = []
        if self._process.poll() is None:
            descendants = psutil.Process(self._process.pid).children(recursive=True)
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(descendants, timeout=_STOP_SECONDS)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._folder.cleanup()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
