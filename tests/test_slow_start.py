"""A real node whose ClientApp starts too slowly, as on a busy machine: it is named, and the run ends in time."""

import os
import re
import time
from pathlib import Path

import pytest

from florets.conf.extras import PROJECT
from florets.deploy.federation import Federation
from florets.engines import flower_processes
from florets.task.data.demo_data import write_folders

pytestmark = pytest.mark.slow

CLAIM_SECONDS = 30
"""How long Flower 1.41 waits for the first sign of life of a ClientApp (docs/deployment.md, section 6)."""

SLOW = """#!/bin/sh
if [ -e "$FLWR_HOME/overloaded" ]; then sleep {seconds}; fi
exec {program} "$@"
"""


def wait(seconds: float, what: str) -> None:
    assert seconds > 0, f"no {what} in time"
    time.sleep(1)


def test_a_node_whose_start_outlasts_flowers_claim_is_named_and_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    slow = programs / "flwr-clientapp"
    slow.write_text(SLOW.format(seconds=1.5 * CLAIM_SECONDS, program=flower_processes.command(slow.name)))
    slow.chmod(0o755)
    environment = flower_processes.environment

    def with_slow(home: Path) -> dict[str, str]:
        found = environment(home)
        return {**found, "PATH": os.pathsep.join([str(programs), found["PATH"]])}

    monkeypatch.setattr(flower_processes, "environment", with_slow)
    with Federation(tmp_path / "federation") as federation:
        clusters = write_folders(tmp_path / "data")
        ready, late = list(clusters)[:2]
        federation.add({name: {"data-dir": str(tmp_path / "data" / name)} for name in (ready, late)})
        overrides = "strategy=fedavg min_clients=2 num_rounds=1 quorum=1.0 round_tries=1 round_timeout=100"
        settings = {"experiment": "own_digits", "overrides": overrides, "results-dir": str(tmp_path / "results")}
        run = federation.run(PROJECT, settings)
        deadline = time.monotonic() + 600
        # It describes its data, then introduces itself.
        while federation.log(late).count("Sent successfully") < 2:
            wait(deadline - time.monotonic(), "introduction")
        (federation.kits / late / "state" / "flwr" / "overloaded").touch()
        deadline = time.monotonic() + 600
        while not (state := federation.status(run))[0].startswith("finished"):
            wait(deadline - time.monotonic(), "end")
        told = federation.flwr("log", run, "--show").stdout
    assert state[0] == "finished:failed"
    assert f"1 did not answer in time, for example client {late}" in state[1]
    assert re.search(rf"waiting for 1 of 2 clients: {late} \(\d+ s so far, at most \d+ s more\)", told), told
    # The reason on the node: one start after the other, each of which has lost its claim.
    assert federation.log(late).count("Start `flwr-clientapp` process") >= 3
    assert "Runtime task-token authentication failed" in federation.log(late)
