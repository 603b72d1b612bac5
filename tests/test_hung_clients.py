"""At the end of a simulation the client processes that are still at work are ended, and no others."""

import logging
import subprocess
import sys

import pytest

from server_app import hung_clients


def process_called(title: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["bash", "-c", f'exec -a "{title}" sleep 60'])


def test_only_clients_at_work_are_ended(caplog: pytest.LogCaptureFixture) -> None:
    at_work, idle = process_called("ray::ClientAppActor.run"), process_called("ray::ClientAppActor")
    try:
        with caplog.at_level(logging.WARNING):
            while at_work.poll() is None:
                hung_clients._end_those_at_work()
        assert idle.poll() is None
        assert f"its process {at_work.pid} is ended" in caplog.text
    finally:
        for process in (at_work, idle):
            process.kill()
            process.wait()


def test_without_a_simulation_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(hung_clients, "_watch", lambda: pytest.fail("watched"))
    hung_clients.end_hung_clients()
