"""Cells of `florets reproduce` in processes of their own, and commands that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.reproduce_item import ITEM, results


@pytest.mark.slow
def test_killed_twice_every_cell_is_run_once(tmp_path: Path) -> None:
    small = "num_clients=4, num_rounds=3, 'task.model_options.hidden=[8]', eval_every=10"
    (tmp_path / "item.yaml").write_text(ITEM.replace("num_rounds=2", small).replace("seeds: 3", "seeds: 4"))
    line = [sys.executable, "-m", "florets", "reproduce", "item.yaml", "n_jobs=2"]
    log = results(tmp_path / "item.yaml") / "log.jsonl"

    def ended() -> list[str]:
        return [json.loads(text)["cell"] for text in log.read_text().splitlines()] if log.is_file() else []

    for wanted in (2, 5):
        process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, env=os.environ)
        give_up = time.monotonic() + 300
        while len(ended()) < wanted and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    runs = tmp_path / "results" / "reproduce" / "runs"
    finished = {record.with_suffix("") / "summary.json" for record in runs.rglob("seed-*.json")}
    before = {path: path.stat().st_mtime_ns for path in finished}
    assert len(before) >= 5
    # The workers end with the process that started them.
    time.sleep(2)
    subprocess.run(line, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert "9 cells: 9 finished." in (log.parent / "table.md").read_text()
    assert len(ended()) == len(set(ended()))
    assert {path: path.stat().st_mtime_ns for path in finished} == before
