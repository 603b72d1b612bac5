"""A run of Flower's simulation that was killed goes on through `florets resume=` and through `flwr run`."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from florets.engines.flower_run import NAME, SuperLink

ROOT = Path(__file__).parents[1]
FLORETS = [sys.executable, "-m", "florets"]
SETTINGS = ["num_clients=6", "k=2", "task.num_clusters=2", "task.model_options.hidden=[16]", "num_rounds=60"]

pytestmark = pytest.mark.slow


def florets(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*FLORETS, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def killed_run(results: Path, all_of_it: bool) -> Path:
    """Start a simulation, kill florets after some rounds, perhaps with all its processes, and return its folder."""
    process = subprocess.Popen([*FLORETS, "engine=flwr", *SETTINGS, f"results_dir={results}"], cwd=ROOT)
    deadline = time.monotonic() + 300
    while not list(results.rglob("round-000005.safetensors")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = psutil.Process(process.pid).children(recursive=True)
    for member in (process, *family) if all_of_it else (process,):
        member.kill()
    process.wait()
    # Left alone, the others end by themselves, Ray's agents after a minute: nothing may go on in the run's folder.
    assert psutil.wait_procs(family, timeout=120)[1] == []
    (marker,) = results.rglob("rounds.jsonl")
    assert 5 <= len(marker.read_text().splitlines()) < 60
    assert not (marker.parent / "report.html").exists()
    return marker.parent


def assert_equal_ends(folder: Path, whole: Path) -> None:
    """Check rounds, tables and models against those of a run in process that was never killed.

    Times differ, and so do the bytes sent: in process a client keeps the models of the loss exchange.
    """
    lines = [
        [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()] for run in (folder, whole)
    ]
    for line in (*lines[0], *lines[1]):
        del line["seconds"], line["client_seconds"], line["bytes_down"]
    assert lines[0] == lines[1]
    for name in ("models.safetensors", "clusters.safetensors", "clients.csv", "loss_matrix.csv"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    models = load_file(whole / "models.safetensors")
    for name, values in load_file(folder / "models.safetensors").items():
        np.testing.assert_array_equal(values, models[name])


def test_a_simulation_that_was_killed_goes_on_and_ends_as_if_it_never_had_been(tmp_path: Path) -> None:
    done = florets(*SETTINGS, "batch_clients=off", f"results_dir={tmp_path / 'whole'}", "quiet=true")
    assert done.returncode == 0, done.stderr
    (marker,) = (tmp_path / "whole").rglob("rounds.jsonl")
    whole = marker.parent

    folder = killed_run(tmp_path / "killed", all_of_it=True)
    # The folder's configuration says engine=flwr.
    done = florets(f"resume={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after round" in done.stdout + done.stderr
    assert_equal_ends(folder, whole)

    folder = killed_run(tmp_path / "orphaned", all_of_it=False)
    # The command of the README, against a SuperLink of the test's own.
    federation = "num-supernodes=6 client-resources-num-cpus=1"
    with SuperLink() as superlink:
        command = ["run", str(ROOT), NAME, "--stream", "--run-config", f"resume='{folder}'"]
        superlink.flwr(*command, "--federation-config", federation, capture=True)
        listed = superlink.flwr("ls", NAME, "--format", "json", capture=True).stdout
    assert "finished:completed" in listed
    assert_equal_ends(folder, whole)
