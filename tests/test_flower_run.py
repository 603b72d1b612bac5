"""Real Flower simulations: the same results as in process, errors as the run's status, a killed run that goes on."""

import json
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from florets.engines.flower_run import NAME, own_superlink

# Runs
ROOT = Path(__file__).parents[1]
FLORETS = Path(sys.executable).parent / "florets"

SMALL = "num_clients=6 k=2 task.num_clusters=2 task.model_options.hidden=[16]"
SHORT = f"{SMALL} num_rounds=1 strategy.moment_rounds=1"

pytestmark = pytest.mark.slow


def florets(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(FLORETS), *arguments], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    "settings",
    [
        "clove num_rounds=4",
        "clove num_rounds=11 strategy.stability_rounds=2 task.drift.rounds=[9]",
        # Three of Flower's nodes, the last of which hosts four clients.
        "ifca num_rounds=4 clients_per_node=8",
        "fedavg num_rounds=4 fine_tune_epochs=1 task.validation_fraction=0.2",
        f"cfl_gp {SMALL} num_rounds=3",
        f"two_phase {SHORT} strategy.subspace=direct",
        f"fedem {SMALL} num_rounds=2 fine_tune_epochs=0.5 task.validation_fraction=0.2",
        f"clove {SMALL} num_rounds=6 personal=slopes",
        # Four groups in 20 clients, of which nobody is told.
        "discovery num_rounds=2 k=auto",
    ],
    ids=lambda settings: settings.split()[0],
)
def test_flower_and_the_local_engine_give_equal_models_and_assignments(tmp_path: Path, settings: str) -> None:
    """Of each strategy the golden runs say so much: their messages and states go over Flower's wire."""
    folders = []
    for engine in ("local", "flwr"):
        words = f"batch_clients=off strategy={settings}".split()
        given = [word for word in words if engine == "flwr" or not word.startswith("clients_per_node=")]
        done = florets(f"engine={engine}", *given, f"results_dir={tmp_path / engine}")
        assert done.returncode == 0, done.stdout + done.stderr
        (models,) = (tmp_path / engine).rglob("models.safetensors")
        folders.append(models.parent)
    local, flower = (load_file(folder / "models.safetensors") for folder in folders)
    assert local.keys() == flower.keys()
    for name in local:
        np.testing.assert_array_equal(local[name], flower[name])
    # Everything about a client: its cluster, and the results of its tests.
    tables = [(folder / "clients.csv").read_text() for folder in folders]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("nodes", "settings", "expected"), [(3, "", "num-supernodes=20"), (2, "overrides='no_such_key=1'", "no_such_key")]
)
def test_a_run_that_cannot_work_ends_soon_and_says_why(
    tmp_path: Path, nodes: int, settings: str, expected: str
) -> None:
    with own_superlink() as superlink:
        config = ["--run-config", f"results-dir='{tmp_path}' {settings}"]
        federation = ["--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1"]
        superlink.flwr("run", str(ROOT), NAME, *federation, *config, "--stream", capture=True)
        listed = superlink.flwr("ls", NAME, "--format", "json", capture=True).stdout
    assert "finished:failed" in listed
    assert expected in listed
    assert not list(tmp_path.rglob("rounds.jsonl"))


def test_a_run_on_a_superlink_that_somebody_else_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [*SMALL.split(), "num_rounds=2", "batch_clients=off"]
    with own_superlink() as superlink:
        monkeypatch.setenv("FLWR_HOME", superlink.environment["FLWR_HOME"])
        done = florets("engine=flwr", f"superlink={NAME}", *here, f"results_dir={tmp_path / 'flwr'}")
        assert done.returncode == 0, done.stdout + done.stderr
        unknown = florets("engine=flwr", "superlink=unknown", *here, f"results_dir={tmp_path / 'none'}")
    assert unknown.returncode == 1
    assert "Flower rejected the run" in unknown.stderr
    assert florets(*here, f"results_dir={tmp_path / 'local'}").returncode == 0
    (theirs,), (ours,) = ((tmp_path / name).rglob("models.safetensors") for name in ("flwr", "local"))
    assert theirs.read_bytes() == ours.read_bytes()


def test_interrupting_a_run_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [str(FLORETS), "engine=flwr", "num_rounds=2000", f"results_dir={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    family = psutil.Process(process.pid)
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("rounds.jsonl")) and time.monotonic() < deadline:
        time.sleep(1)
    descendants = family.children(recursive=True)
    assert len(descendants) > 3
    process.terminate()
    process.wait(90)
    alive = psutil.wait_procs(descendants, timeout=30)[1]
    assert [process.name() for process in alive] == []


HATCH = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
PACKED = (*HATCH["build"]["targets"]["wheel"]["only-include"], "pyproject.toml", "LICENSE", "README.md", ".gitignore")


def copy_of_the_app(target: Path) -> Path:
    """Copy what Flower packs of this project into a folder, and return the folder."""
    target.mkdir()
    for name in PACKED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target / name)  # type: ignore[operator]
    return target


# A killed run
SETTINGS = ["num_clients=6", "k=2", "task.num_clusters=2", "task.model_options.hidden=[16]", "num_rounds=60"]


def killed_run(results: Path, all_of_it: bool) -> Path:
    """Start a simulation, kill florets after some rounds, perhaps with all its processes, and return its folder."""
    process = subprocess.Popen([str(FLORETS), "engine=flwr", *SETTINGS, f"results_dir={results}"], cwd=ROOT)
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
    with own_superlink() as superlink:
        command = ["run", str(ROOT), NAME, "--stream", "--run-config", f"resume='{folder}'"]
        superlink.flwr(*command, "--federation-config", federation, capture=True)
        listed = superlink.flwr("ls", NAME, "--format", "json", capture=True).stdout
    assert "finished:completed" in listed
    assert_equal_ends(folder, whole)
