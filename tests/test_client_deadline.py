"""A node's process for one message ends at the message's deadline; no other process does."""

import faulthandler
import os
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flwr.app import Context, Message, RecordDict

from florets.client_app.app import _HANDLERS, app, within_deadline
from florets.engines.local_grid import as_flowers_process

CONTEXT = Context(1, 2, {}, RecordDict(), {})


def handle(seconds: float, ttl: float = 0.1) -> Any:
    def answer(message: Any, context: Any) -> Any:
        time.sleep(seconds)
        return "answer"

    message = SimpleNamespace(metadata=SimpleNamespace(ttl=ttl))
    return within_deadline(cast(Any, message), CONTEXT, answer)


def test_every_handler_is_held_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app._mods == [within_deadline]
    as_flowers_process()
    monkeypatch.setattr(sys, "argv", ["flwr-clientapp"])
    deadlines: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: deadlines.append(seconds))
    for kind in _HANDLERS:
        # Without settings no client can answer.
        with pytest.raises(ValueError, match="has no 'config'"):
            app(Message(RecordDict(), 7, kind, ttl=5.0), CONTEXT)
    assert deadlines == [5.0] * len(_HANDLERS)


def test_a_nodes_process_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/flwr-clientapp", "--token", "x"])
    pid = os.fork()
    if pid == 0:
        try:
            handle(20)
        finally:
            os._exit(2)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 1
    # The node's owner reads where it hung.
    said = capfd.readouterr().err
    assert "Timeout (" in said
    assert "in answer" in said


@pytest.mark.parametrize("ttl", [0.1, 3600.0, float("inf")])
def test_a_client_that_answers_is_left_alone(monkeypatch: pytest.MonkeyPatch, ttl: float) -> None:
    monkeypatch.setattr(sys, "argv", ["flwr-clientapp"])
    assert handle(0, ttl) == "answer"
    time.sleep(0.2)


def test_a_process_that_is_not_one_messages_alone_is_never_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: pytest.fail("a deadline was set"))
    assert handle(0) == "answer"
