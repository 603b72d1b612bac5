"""A run ends with its SuperLink; at the end of a simulation the clients still at work are ended, and no others."""

import contextlib
import logging
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from florets.server_app import app

ROOT = Path(__file__).parents[1]


def process_called(title: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["bash", "-c", f'exec -a "{title}" sleep 60'])


def test_only_clients_at_work_are_ended(caplog: pytest.LogCaptureFixture) -> None:
    at_work, idle = process_called("ray::ClientAppActor.run"), process_called("ray::ClientAppActor")
    try:
        with caplog.at_level(logging.WARNING):
            deadline = time.monotonic() + 30
            while at_work.poll() is None:
                assert time.monotonic() < deadline
                app._end_those_at_work()
        assert idle.poll() is None
        assert f"ending its process {at_work.pid}" in caplog.text
    finally:
        for process in (at_work, idle):
            process.kill()
            process.wait()


def test_without_a_simulation_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(app.threading, "Thread", lambda *_, **__: pytest.fail("watched"))
    app.end_hung_clients()
    app.end_with_flower()


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


def test_a_flower_task_ends_with_its_parent() -> None:
    started = subprocess.run([sys.executable, "-c", PARENT, TASK], capture_output=True, check=True, cwd=ROOT)
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        task = psutil.Process(int(started.stdout))
        while task.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
