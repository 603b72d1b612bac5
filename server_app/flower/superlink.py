"""A SuperLink of one's own, for the time of one run: nothing of another run's can leak in."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from florets.engines import flower_processes
from florets.server_app.workers import ray_address

NAME = "own"
"""Name of the connection in the SuperLink's own Flower configuration."""

_START_SECONDS = 180.0
"""Seconds of a start; a few on an idle machine, but more than a minute where others keep its cores busy."""


class SuperLink:
    """Start a SuperLink for simulations on a free port of this machine, and end it with the block.

    It gets a Flower home of its own and an empty working directory, because simulated clients import from the folder
    in which the SuperLink was started before they look at the app that was sent. Its simulations are on a Ray of
    their own where the environment does not name a cluster (``RAY_ADDRESS``).

    Raises
    ------
    RuntimeError
        If it ends, or does not answer within three minutes; the text holds the end of its log.
    """

    def __enter__(self) -> "SuperLink":
        self._folder = tempfile.TemporaryDirectory(prefix="florets-", ignore_cleanup_errors=True)
        root = Path(self._folder.name)
        home, work = root / "flwr", root / "empty"
        home.mkdir()
        work.mkdir()
        port = flower_processes.free_port()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        self.environment = flower_processes.environment(home)
        # Else Ray goes by the cluster that was started last on this machine, and waits for ever if that was killed.
        self.environment[ray_address.NAME] = self.environment.get(ray_address.NAME) or ray_address.OWN
        self._log = root / "superlink.log"
        with self._log.open("wb") as log:
            arguments = ["--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
            self._process = flower_processes.start("flower-superlink", arguments, work, self.environment, log)
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
        return subprocess.run(
            [flower_processes.command("flwr"), *arguments],
            env=self.environment,
            text=True,
            capture_output=capture,
            check=False,
        )

    def log_end(self, lines: int = 20) -> str:
        """Return the last lines of the SuperLink's log."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _wait(self, port: int) -> None:
        if not flower_processes.wait_for_http(self._process, port, _START_SECONDS):
            ended = self._process.poll() is not None
            why = "ended at once" if ended else f"did not answer within {_START_SECONDS:.0f} s; is the machine busy?"
            raise RuntimeError(f"the SuperLink {why}\n{self.log_end()}")

    def _stop(self) -> None:
        try:
            flower_processes.end(self._process)
        finally:
            self._folder.cleanup()
