"""Clients that hang or whose process dies, in Flower's own simulation: the round goes on with the others."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKED = (
    "florets",
    "reports",
    "server_app",
    "client_app",
    "strategies",
    "task",
    "conf",
    "pyproject.toml",
    "LICENSE",
    "README.md",
    ".gitignore",
)

# What is appended to a copy's ClientApp: client 0 never answers the training message of round 2.
BROKEN = """

import os as _os
import time as _time


class _Broken(ClientApp):
    def __call__(self, message, context):
        config = message.content.config_records.get("config", {})
        is_it = context.node_config["partition-id"] == 0 and config.get("server-round") == 2
        if is_it and message.metadata.message_type == "train":
            FAULT
        return super().__call__(message, context)


app.__class__ = _Broken
"""

pytestmark = pytest.mark.slow


def florets(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "florets", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.parametrize(
    ("fault", "lost"),
    [("_time.sleep(10**6)", 1), ("_os._exit(1)", 1), ("_time.sleep(2)", 0)],
)
def test_a_client_that_hangs_or_dies_costs_itself_the_round(tmp_path: Path, fault: str, lost: int) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in PACKED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, project / name)  # type: ignore[operator]
    with (project / "client_app" / "app.py").open("a") as file:
        file.write(BROKEN.replace("FAULT", fault))
    settings = ["engine=flwr", "num_clients=6", "k=2", "task.num_clusters=2", "num_rounds=4", "round_timeout=60"]
    done = florets(project, *settings, "strategy=fedavg", f"results_dir={tmp_path / 'results'}")
    if "exit" in fault and done.returncode:
        # Flower does not replace the Ray actor that died with the client: those that it would have served fail too.
        # Then the run ends in good order, and goes on in a new simulation.
        (folder,) = {path.parent for path in (tmp_path / "results").rglob("config.yaml")}
        assert f"go on with: florets resume={folder}" in done.stdout + done.stderr
        done = florets(project, f"resume={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results").rglob("rounds.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    # Six training and six test replies a round.
    assert lines[0]["replies"] == {"ok": 12, "error": 0, "missing": 0, "invalid": 0}
    # What has not come by the deadline is missing, or an error where Flower notes first that the message expired.
    replies = lines[1]["replies"]
    assert replies["error"] + replies["missing"] >= lost
    # A dead actor can take any number of the other messages with it: of the six of training the quorum has answered.
    assert replies["ok"] >= (3 if "exit" in fault else 12 - 2 * lost)
