"""`log=json`: every line of a run is one JSON object, on the screen and in run.log, Flower's own among them."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from florets.client_app import app as client
from florets.commands.main import main
from florets.reports.console import lines_in
from florets.reports.run_state import state_of
from florets.task.log_lines import is_json
from tests.flower_tools import flower_log
from tests.test_resume import run_folder

KEYS = ["num_clients=4", "k=2", "task.num_clusters=2", "num_rounds=2", "pictures=false", "log=json"]


def entries(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*KEYS, f"results_dir={tmp_path}"]) == 0
    captured, folder = capsys.readouterr(), run_folder(tmp_path)
    shown, result = entries(captured.err), entries(captured.out)
    kept = entries((folder / "run.log").read_text())
    for entry in [*shown, *result, *kept]:
        assert list(entry)[:4] == ["time", "level", "logger", "what"]
    rounds = [entry for entry in shown if "round" in entry]
    assert [entry["round"] for entry in rounds] == [1, 2]
    assert [entry["fields"]["ari"] for entry in rounds] == [
        json.loads(line)["ari"] for line in (folder / "rounds.jsonl").read_text().splitlines()
    ]
    assert rounds == [entry for entry in kept if "round" in entry]
    # A note is one line.
    assert sum("oss matrix: " in entry["what"] for entry in shown) == 1
    assert result[0]["what"].startswith("quickstart, clove, seed 0: accuracy")
    assert not is_json()


def test_errors_are_lines_as_well_and_their_reason_is_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*KEYS, "seed=-1", f"results_dir={tmp_path}"]) == 2
    (entry,) = entries(capsys.readouterr().err)
    assert (entry["level"], entry["what"][:13]) == ("error", "florets: seed")
    ended = [*KEYS, "train.learning_rate=1e30", f"results_dir={tmp_path}"]
    assert main(ended) == 1
    assert entries(capsys.readouterr().err)[-1]["level"] == "error"
    state = state_of(run_folder(tmp_path))
    assert state.status == "ended"
    assert "learning rate" in state.reason


def test_flowers_lines_and_tracebacks_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with lines_in("json"):
        flower_log(logging.WARNING, "two\nlines %d", 7)
        flower_log(logging.WARNING, "")
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("florets").exception("failed")
    flower, own = entries(capsys.readouterr().err)
    assert (flower["logger"], flower["level"], flower["what"]) == ("flwr", "warning", "two\nlines 7")
    assert own["what"] == "failed"
    assert own["error"].endswith("ValueError: why")
    flower_log(logging.DEBUG, "not shown")
    with lines_in("text"):
        assert not is_json()


@pytest.mark.parametrize(("node", "number"), [({"log": "json"}, 1), ({}, 0)])
def test_a_nodes_client_app_writes_json_where_its_config_says_so(
    monkeypatch: pytest.MonkeyPatch, node: dict[str, Any], number: int
) -> None:
    started = list[bool]()
    monkeypatch.setattr(client, "has_process_of_its_own", lambda: True)
    monkeypatch.setattr(client, "start_json", lambda: started.append(True))
    message: Any = SimpleNamespace(metadata=SimpleNamespace(ttl=60.0))
    context: Any = SimpleNamespace(node_config=node)
    client.within_deadline(message, context, lambda *_: message)
    assert len(started) == number
