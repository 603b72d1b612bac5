"""Flower's processes, started for a time and ended for certain: by process id, and nobody else's."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from florets.conf.extras import PROJECT

if TYPE_CHECKING:
    import psutil

STOP_SECONDS = 15.0

_MARK = "FLORETS_FAMILY"
_marks: "weakref.WeakKeyDictionary[subprocess.Popen[bytes], str]" = weakref.WeakKeyDictionary()

# Becomes the program that it is given. Python's own way of doing this in the child is not safe with threads. A
# SuperLink that is asked politely first waits for the run's log to be read to its end; killed, its tasks end at once.
_FOLLOW = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
parent, *command = sys.argv[1:]
if os.getppid() == int(parent):
    os.execvp(command[0], command)
"""

_SETTINGS = {
    # What they write is read, or goes to a log.
    "PYTHONIOENCODING": "utf-8:replace",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Without it every run builds a second Python environment.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    # Clients on one machine share its cores: one thread each.
    "OMP_NUM_THREADS": "1",
    # Without it Ray prints a warning about a default that it will change.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def command(name: str) -> str:
    """Return the path of one of Flower's commands, next to this Python."""
    return str(Path(sys.executable).parent / name)


def environment(flower_home: Path | None) -> dict[str, str]:
    """Return the environment of a Flower process with a home of its own, or with the user's."""
    # Flower finds its own commands through PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = {**os.environ, **past_proxies(os.environ), **_SETTINGS, "PATH": path}
    if flower_home is not None:
        found["FLWR_HOME"] = str(flower_home)
    # An installed package is found without; a repository may be another one than the one that is installed.
    if (PROJECT / "florets").is_dir():
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    return found


def past_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which this machine reaches itself past any proxy, and other hosts as before."""
    found = {}
    # gRPC takes the third before the first, and knows no star.
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        given = next(filter(None, map(environment.get, (name, "no_proxy", "NO_PROXY"))), "")
        hosts = [host.strip() for host in given.split(",") if host.strip()]
        # Elsewhere a star means every host, but only by itself.
        is_all = hosts == ["*"] and name != "no_grpc_proxy"
        found[name] = given if is_all else ",".join(dict.fromkeys([*hosts, *_THIS_MACHINE]))
    return found


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    while True:
        # Below those that systems choose for connections.
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, seconds: float, http: bool = False) -> bool:
    """Wait until a process listens on a port, or answers HTTP on it; False if it ends or the time is over before."""
    deadline = time.monotonic() + seconds
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if http:
                directly.open(f"http://127.0.0.1:{port}/", timeout=1).close()
            else:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
    return False


def start(
    program: str,
    arguments: Sequence[str],
    folder: Path,
    settings: Mapping[str, str],
    log: IO[bytes],
    umask: int = -1,
) -> "subprocess.Popen[bytes]":
    """Start one of Flower's programs, so that `end` finds all that descends from it even after it has died.

    On Linux it is killed where this process (this thread) dies and cannot end it any more. It works in `folder`, with
    `settings` as its environment, and writes everything to `log`. `umask`
    is that of the files that it makes; -1: this process's.
    """
    mark = uuid.uuid4().hex
    follow = [sys.executable, "-I", "-S", "-c", _FOLLOW, str(os.getpid())] if sys.platform == "linux" else []
    process = subprocess.Popen(
        [*follow, command(program), *arguments],
        cwd=folder,
        env={**settings, _MARK: mark},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=umask,
    )
    _marks[process] = mark
    return process


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that descends from it, politely at first.

    No signal to a group finds them all: Flower's tasks and Ray have sessions of their own.
    """
    family = _descendants(process)
    with contextlib.ExitStack() as stack:
        # Looked for once more: on its way out a process may have started another.
        stack.callback(lambda: _end_all([*{*family, *_descendants(process)}]))
        if process.poll() is None:
            stack.callback(process.wait)
            # Does nothing where it has gone.
            stack.callback(process.kill)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)


def _descendants(process: "subprocess.Popen[bytes]") -> "set[psutil.Process]":
    """Return what descends from a process: its children's children, and whatever carries its mark."""
    # Of the extra `sim`: runs on somebody else's SuperLink start no processes, and need none.
    import psutil

    found: set[psutil.Process] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.poll() is None:
            found.update(psutil.Process(process.pid).children(recursive=True))
    if process in _marks:
        # Children inherit the environment, and keep it when their parent dies.
        for other in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if other.pid != process.pid and other.environ().get(_MARK) == _marks[process]:
                    found.add(other)
    return found


def _end_all(family: "Sequence[psutil.Process]") -> None:
    import psutil

    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    for member in psutil.wait_procs(family, timeout=STOP_SECONDS)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
