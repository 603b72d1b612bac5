"""Parts of deployments and simulations that need no process of Flower: processes, proxies, the end of a run."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from florets.deploy.federation import Federation
from florets.engines import flower_processes
from florets.server_app import app

# Processes and proxies
HERE = "127.0.0.1,localhost,::1"


def test_every_process_is_ended_although_the_end_of_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []

    def end(process: object) -> None:
        ended.append(process)
        if process == 2:
            raise OSError("cannot be ended")

    monkeypatch.setattr(flower_processes, "end", end)
    federation = Federation(tmp_path)
    federation._started = cast(Any, [1, 2, 3])
    with pytest.raises(OSError, match="cannot be ended"):
        federation._end_all()
    assert ended == [3, 2, 1]


def wait_for_the_end(number: str | bytes) -> None:
    """Wait until a process is gone, or dead and soon gone: whoever inherits orphans takes his time."""
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(number))
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("lives", [True, False])
def test_a_child_is_ended_with_its_parent_be_that_dead_already_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    monkeypatch.setattr(flower_processes, "command", lambda name: name)
    monkeypatch.setattr(flower_processes, "STOP_SECONDS", 0.3)
    script = f"setsid sleep 100 & echo $! > child; {'sleep 100' if lives else 'exit 0'}"
    with (tmp_path / "log").open("wb") as log:
        parent = flower_processes.start("sh", ["-c", script], tmp_path, {"PATH": "/usr/bin:/bin"}, log)
    if not lives:
        parent.wait(10)
    deadline = time.monotonic() + 10
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    flower_processes.end(parent)
    wait_for_the_end((tmp_path / "child").read_text())
    assert parent.poll() is not None


# Starts a program and is killed at once.
KILLED = """
import os, signal, sys
from pathlib import Path
from florets.engines import flower_processes
from florets.reports.summary import read_lines
flower_processes.command = lambda name: name
started = flower_processes.start("sleep", ["60"], Path.cwd(), os.environ, sys.stdout.buffer)
print(started.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell a process of its parent's death")
def test_what_a_killed_process_had_started_ends_too(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    assert done.returncode == -signal.SIGKILL
    wait_for_the_end(done.stdout)


@pytest.mark.parametrize(
    ("given", "lower", "upper", "grpc"),
    [
        ({"NO_PROXY": "intranet, 10.0.0.0/8"}, *[f"intranet,10.0.0.0/8,{HERE}"] * 3),
        ({"no_proxy": "a", "no_grpc_proxy": "c"}, f"a,{HERE}", f"a,{HERE}", f"c,{HERE}"),
        ({"no_proxy": "*"}, "*", "*", f"*,{HERE}"),
    ],
)
def test_processes_reach_this_machine_past_any_proxy(
    given: dict[str, str], lower: str, upper: str, grpc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**given, "HTTPS_PROXY": "http://proxy:3128"}.items():
        monkeypatch.setenv(name, value)
    found = flower_processes.environment(None)
    assert [found[name] for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy")] == [lower, upper, grpc]
    # Other hosts are reached as before.
    assert found["HTTPS_PROXY"] == "http://proxy:3128"


def test_a_superlink_is_awaited_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        alive: Any = SimpleNamespace(poll=lambda: None)
        assert flower_processes.wait_for_port(alive, server.server_port, 1, http=True)


# The end of a run
ROOT = Path(__file__).parents[1]


def test_only_clients_at_work_are_ended() -> None:
    titles = ("ray::ClientAppActor.run", "ray::ClientAppActor")
    at_work, idle = (subprocess.Popen(["bash", "-c", f'exec -a "{title}" sleep 20']) for title in titles)
    while at_work.poll() is None:
        app._end_those_at_work()
    assert (at_work.wait(), idle.poll()) == (-signal.SIGKILL, None)
    idle.kill()
    idle.wait()


# Starts the second process, and is gone.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
TASK = """
import sys, time
from florets.server_app import app
sys.argv[0], app._LOOK_SECONDS = "/anywhere/flwr-simulation", 0.05
app.end_with_flower()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_flower_task_ends_with_its_parent() -> None:
    started = subprocess.run([sys.executable, "-c", PARENT, TASK], capture_output=True, check=True, cwd=ROOT)
    wait_for_the_end(started.stdout)
