"""Real SuperLink and SuperNodes with TLS and keys: the demonstration, single methods, and nodes that are killed."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from florets.commands.main import main
from florets.deploy.demo import follow
from florets.deploy.federation import Federation
from florets.strategies.base.report import SUMMED
from florets.task.data.demo_data import write_folders
from florets.task.data.tables.declaration import NODE_FILE
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.node_log import NodeLog
from tests.test_flower_run import copy_of_the_app

ROOT = Path(__file__).parents[1]
DATA_DIR, TRUE_CLUSTER = "data-dir", "true-cluster"

pytestmark = pytest.mark.slow


def test_the_demonstration_ends_with_all_clusters_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "florets.deploy.demo", "--rounds", "4", "--results-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "ari=1.0"
    assert sum("Refused, as it should be" in line for line in lines) == 3
    assert any("Discovery: 2 groups of 3, 3 clients" in line for line in lines)
    (last,) = [line for line in lines if "Round 4 " in line]
    assert "6 nodes" in last


def rounds(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in results.rglob("rounds.jsonl") for line in path.read_text().splitlines()]


def leaks(root: Path, written: list[Path]) -> list[str]:
    """Return the files below `written` that hold a line of a private key below root."""
    private = [*(root / "kits").rglob("*.key")]
    secrets = {line for path in private for line in path.read_bytes().splitlines() if not line.startswith(b"-----")}
    assert len(secrets) > len(private)
    files = [path for folder in written for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in secrets)]


def wait_for(what: str, condition: Callable[[], bool], seconds: float, pause: float = 0.05) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(pause)


def start_nodes(federation: Federation, data: Path) -> None:
    """Make the demonstration's four folders, and start a node beside each."""
    clusters = write_folders(data)
    federation.add({name: {DATA_DIR: str(data / name), TRUE_CLUSTER: own} for name, own in clusters.items()})


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Four nodes that serve one run after the other; beside each one's data lies what its node config says."""
    root = tmp_path_factory.mktemp("deployed")
    with Federation(root / "federation") as started:
        start_nodes(started, root / "data")
        for node in started.nodes.values():
            (node.data / NODE_FILE).write_text(f"{TRUE_CLUSTER} = {node.settings[TRUE_CLUSTER]}\n")
        yield started


@pytest.mark.parametrize(
    "strategy",
    [
        # What all strategies send, the golden runs have.
        "fedem train=sgd",
        # The importance weights of round 1 are old in round 3.
        "fedsoft num_rounds=3",
    ],
    ids=lambda strategy: strategy.split()[0],
)
def test_a_deployed_run_ends_with_the_models_of_the_run_in_process(
    federation: Federation, tmp_path: Path, strategy: str
) -> None:
    assert len(numbers_of_equal_models(federation, tmp_path, strategy)) == 2


def test_a_deployed_run_ends_with_the_personal_models_of_the_run_in_process(
    federation: Federation, tmp_path: Path
) -> None:
    # A common model and each of the four clients'.
    assert len(numbers_of_equal_models(federation, tmp_path, "ditto num_rounds=3")) == 5


def test_deployed_nodes_keep_their_secrets_from_one_process_to_the_next(
    federation: Federation, tmp_path: Path
) -> None:
    numbers_of_equal_models(federation, tmp_path, "fedavg secure_aggregation=true")
    assert [line["details"][SUMMED] for line in rounds(tmp_path)] == [4.0] * 4


def numbers_of_equal_models(federation: Federation, tmp_path: Path, strategy: str) -> set[str]:
    """Run a strategy in process and on the nodes, hold one to the other, and return the models' numbers."""
    length = "" if "num_rounds" in strategy else "num_rounds=2"
    settings = f"strategy={strategy} {length} eval_every=9 batch_clients=off"
    data = next(iter(federation.nodes.values())).data.parent
    given = [
        "experiment=own_digits",
        *settings.split(),
        f"data_dir={data}",
        f"results_dir={tmp_path / 'local'}",
        "-q",
    ]
    assert main(given) == 0
    (local,) = (path.parent for path in (tmp_path / "local").rglob("summary.json"))
    deployed = follow(federation, begun(federation, settings, tmp_path / "deployed"), tmp_path / "deployed")
    expected, found = (load_file(folder / "models.safetensors") for folder in (local, deployed))
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
    assert (deployed / "clients.csv").read_text() == (local / "clients.csv").read_text()
    for told in ("participants", "ari"):
        assert [line[told] for line in rounds(deployed)] == [line[told] for line in rounds(local)]
    assert all(line["replies"]["error"] + line["replies"]["missing"] == 0 for line in rounds(deployed))
    own = [folder / "own_models.safetensors" for folder in (local, deployed)]
    assert own[0].is_file() == own[1].is_file()
    if own[0].is_file():
        assert own[0].read_bytes() == own[1].read_bytes()
    return {name.partition("/")[0] for name in expected}


def kill_process(process: "subprocess.Popen[bytes] | None") -> None:
    assert process is not None
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


def start_again(federation: Federation, name: str) -> None:
    """Start a node until the SuperLink takes it: after a crash it does so once it has given the old one up."""
    entered = federation.log(name).count("SuperNode ID")

    def has_entered() -> bool:
        process = federation.nodes[name].process
        if process is None or process.poll() is not None:
            federation.start(name)
        return federation.log(name).count("SuperNode ID") > entered

    wait_for(f"{name} to come back", has_entered, 300, pause=2)


def begun(federation: Federation, settings: str, results: Path, app: Path = ROOT) -> str:
    """Start a run of the demonstration's digits, and return its id."""
    keys = {"experiment": "own_digits", "overrides": f"{settings} start_timeout=600", "results-dir": str(results)}
    return federation.run(app, keys)


def in_round_3(federation: Federation, settings: str, results: Path) -> str:
    """Start a run, wait until it is in the middle of round 3, and return its id."""
    run_id = begun(federation, settings, results)
    wait_for("round 2", lambda: len(rounds(results)) >= 2, 900)
    received = federation.log("pictures-2").count("Receiving:")
    wait_for("a message of round 3", lambda: federation.log("pictures-2").count("Receiving:") > received, 300)
    return run_id


def test_a_node_killed_in_a_round_takes_part_again_within_two_rounds(tmp_path: Path) -> None:
    victim, results = "pictures-2", tmp_path / "results"
    with Federation(tmp_path / "federation") as federation:
        start_nodes(federation, tmp_path / "data")
        run_id = in_round_3(federation, "num_rounds=9 eval_every=9", results)
        kill_process(federation.nodes[victim].process)
        killed_in = len(rounds(results)) + 1
        start_again(federation, victim)
        # How long a start takes depends on the machine: rounds count from the node's return on.
        back_in = len(rounds(results)) + 1
        # Each look starts a Python process: seldom.
        wait_for("the end", lambda: federation.status(run_id)[0].startswith("finished"), 900, pause=10)
        assert federation.status(run_id)[0] == "finished:completed", federation.log("server")[-3000:]
    lines = rounds(results)
    lost = lines[killed_in - 1]["replies"]
    assert lost["error"] + lost["missing"] >= 1
    whole = [
        line["round"] for line in lines[killed_in:] if line["participants"] == 4 and line["replies"]["ok"] % 4 == 0
    ]
    assert whole
    assert whole[0] <= back_in + 2
    assert lines[-1]["ari"] == 1.0
    assert not leaks(tmp_path / "federation", [tmp_path / "federation" / "logs", results])


def test_a_superlink_killed_in_a_run_is_started_again_and_the_run_goes_on_to_its_end(tmp_path: Path) -> None:
    """The nodes are left alone: they come back by themselves."""
    results = tmp_path / "results"
    with Federation(tmp_path / "federation") as federation:
        start_nodes(federation, tmp_path / "data")
        killed = in_round_3(federation, "num_rounds=5 eval_every=5", results)
        kill_process(federation.superlink)
        before = rounds(results)
        assert 2 <= len(before) < 5
        federation.start_superlink()
        (marker,) = results.rglob("rounds.jsonl")
        run_id = federation.run(ROOT, {"resume": str(marker.parent)})
        assert run_id != killed
        follow(federation, run_id, results)
        # Of the run that was killed Flower says so as well.
        assert federation.status(killed)[0] == "finished:failed"
    lines = rounds(results)
    assert lines[: len(before)] == before
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["participants"] for line in lines] == [4] * 5
    assert lines[-1]["ari"] == 1.0
    (summary,) = results.rglob("summary.json")
    assert json.loads(summary.read_text())["final_ari"] == 1.0


# What is appended to a copy's training: in round 2 one node's process hangs, and another's dies.
BROKEN = """

import os as _os
import time as _time

_update = update


def update(client, *more):
    node = client.context.node_config["data-dir"].rpartition("/")[2]
    if client.server_round == 2 and node == "pictures-2":
        _time.sleep(10**6)
    if client.server_round == 2 and node == "archive-4":
        _os._exit(1)
    return _update(client, *more)
"""


def test_a_clientapp_that_hangs_and_one_that_dies_cost_their_nodes_one_round(tmp_path: Path) -> None:
    project, results = copy_of_the_app(tmp_path / "project"), tmp_path / "results"
    with (project / "client_app" / "training.py").open("a") as file:
        file.write(BROKEN)
    with Federation(tmp_path / "federation") as federation:
        start_nodes(federation, tmp_path / "data")
        run_id = begun(federation, "num_rounds=6 eval_every=6 round_timeout=90", results, project)
        follow(federation, run_id, results)
    lines = rounds(results)
    # Two of four replies to the training message: the quorum of a half.
    assert lines[1]["replies"]["error"] + lines[1]["replies"]["missing"] == 2
    assert lines[1]["tries"] == 1
    for line in (lines[0], *lines[4:]):
        assert line["replies"]["error"] + line["replies"]["missing"] == 0
        assert line["participants"] == 4
    assert lines[-1]["ari"] == 1.0


def _write(folder: Path, seed: int, unit: float, name: str) -> None:
    """Write 80 patients whose disease follows from age and cholesterol."""
    rng = np.random.default_rng(seed)
    age, dose, sex = rng.normal(60, 9, 80), rng.normal(230, 40, 80), rng.integers(0, 2, 80)
    ill = (age - 60) / 9 + (dose - 230) / 40 + rng.normal(0, 0.3, 80) > 0
    lines = [f"patient_id,age,sex,{name},ill"]
    for row in range(80):
        known = "?" if row % 9 == 0 else f"{dose[row] / unit:.3f}"
        lines.append(f"P{row},{age[row]:.1f},{'MF'[sex[row]]},{known},{'yes' if ill[row] else 'no'}")
    folder.mkdir(parents=True)
    (folder / "export.csv").write_text("\n".join(lines) + "\n")


def test_raw_tables_of_real_nodes_need_no_script(tmp_path: Path) -> None:
    _write(tmp_path / "north", 0, 1.0, "cholesterol")
    _write(tmp_path / "south", 1, 38.67, "serum_chol")
    (tmp_path / "south" / "node.toml").write_text(
        'rename = {serum_chol = "cholesterol"}\nscale = {cholesterol = 38.67}\n'
    )
    with Federation(tmp_path / "federation") as federation:
        federation.add({name: {DATA_DIR: str(tmp_path / name)} for name in ("north", "south")})
        settings = "target=ill strategy=fedavg min_clients=2 num_rounds=2 start_timeout=120"
        results = tmp_path / "results"
        run_id = federation.run(ROOT, {"experiment": "own_data", "overrides": settings, "results-dir": str(results)})
        folder = follow(federation, run_id, results)
        # As that run says they are prepared, tables need not be described.
        settings = (
            f"task.table.preprocessing={folder / 'preprocessing.json'} privacy.kind=central privacy.epsilon=8 "
            "privacy.delta=0.01 privacy.min_group=1 strategy=fedavg num_rounds=2 start_timeout=120"
        )
        keys = {"experiment": "own_data", "overrides": settings, "results-dir": str(tmp_path / "private")}
        run_id = federation.run(ROOT, keys)
        private = follow(federation, run_id, tmp_path / "private")
        assert json.loads((private / "privacy.json").read_text())["spent"].keys() == {"north", "south"}
        assert not (private / "description.json").exists()
        for name in ("north", "south"):
            lines = NodeLog(federation.kits / name / "state" / "flwr" / "florets").lines(int(run_id))
            assert {line.kind for line in lines} == {"query.hello", "train", "evaluate", "evaluate.losses"}
    assert "2 sites, 160 records: north (80), south (80)" in (folder / "run.log").read_text(encoding="utf-8")
    prepared = Preprocessing.of(json.loads((folder / "preprocessing.json").read_text(encoding="utf-8")))
    assert [column.name for column in prepared.numeric] == ["age", "cholesterol"]
    assert prepared.ids == ("patient_id",)
    # Both sites in one unit.
    assert 215 < prepared.numeric[1].mean < 245
    assert prepared.numeric[1].std < 60
    assert prepared.classes == {"no": ("no",), "yes": ("yes",)}
