"""Flower's processes, started for a time and ended for certain: by process id, and nobody else's."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

STOP_SECONDS = 15.0

_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Without it every run builds a second Python environment.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    # Clients on one machine share its cores: one thread each.
    "OMP_NUM_THREADS": "1",
    # Without it Ray prints a warning about a default that it will change.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def command(name: str) -> str:
    """Return the path of one of Flower's commands, beside this Python."""
    return str(Path(sys.executable).parent / name)


def environment(flower_home: Path) -> dict[str, str]:
    """Return the environment of a Flower process with a home of its own."""
    # Flower finds its own commands through PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **_SETTINGS, "FLWR_HOME": str(flower_home), "PATH": path}


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, seconds: float) -> bool:
    """Wait until a process listens on a port; False if it ends or the time is over before."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            time.sleep(0.1)
    return False


def wait_for_http(process: "subprocess.Popen[bytes]", port: int, seconds: float) -> bool:
    """Wait until a process answers HTTP on a port; False if it ends or the time is over before."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
    return False


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that descends from it, politely at first.

    No signal to a group finds them all: Flower's tasks and Ray have sessions of their own.
    """
    descendants = []
    if process.poll() is None:
        descendants = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for descendant in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):
            descendant.terminate()
    for descendant in psutil.wait_procs(descendants, timeout=STOP_SECONDS)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            descendant.kill()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that descends from it without warning (SIGKILL)."""
    family = [psutil.Process(process.pid)] if process.poll() is None else []
    for member in [*family, *(child for parent in family for child in parent.children(recursive=True))]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
