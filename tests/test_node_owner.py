"""Real SuperNodes whose owners have a say: an unapproved app, a policy, the log of what left, code and caps."""

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from florets.deploy.federation import Federation
from florets.task.node_log import Logged, NodeLog
from florets.task.wire.leaving import NAMES
from tests.test_flower_run import copy_of_the_app

# Approval, policy and log
NODES = {"a": {}, "b": {"never-send": ", ".join(NAMES)}, "c": {"never-send": "evaluations"}}
CLOVE = (
    "strategy=clove k=2 num_rounds=1 start_timeout=120 task.data_options.classes=[cat,dog] task.model=linear "
    "task.partition_options.input_shape=[3,2,2] task.partition_options.num_outputs=2"
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    root = tmp_path_factory.mktemp("owned")
    with Federation(root / "federation") as started:
        for number, name in enumerate(NODES):
            for label in ("cat", "dog"):
                (root / name / "data" / label).mkdir(parents=True)
                for image in range(8):
                    Image.new("RGB", (2, 2), (image, number, 7)).save(root / name / "data" / label / f"{image}.png")
        started.add({name: {"data-dir": str(root / name), **policy} for name, policy in NODES.items()})
        yield started


def node(federation: Federation, name: str, *arguments: str) -> str:
    """Return what `florets node` prints in a node's kit."""
    done = subprocess.run(
        [sys.executable, "-m", "florets", "node", *arguments],
        cwd=federation.kits / name,
        env={**os.environ, "FLWR_HOME": str(federation.kits / name / "state" / "flwr"), "COLUMNS": "120"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(federation: Federation, project: Path, results: Path, overrides: str) -> tuple[str, str]:
    keys = {"experiment": "own_data", "overrides": overrides, "results-dir": str(results)}
    before, run_id = len(federation.log("server")), federation.run(project, keys)
    deadline, status, details = time.monotonic() + 900, "", ""
    while not status.startswith("finished"):
        assert time.monotonic() < deadline, federation.log("server")[-3000:]
        time.sleep(2)
        status, details = federation.status(run_id)
    return status, details + federation.log("server")[before:]


def logged(federation: Federation, name: str) -> list[Logged]:
    return list(NodeLog(federation.kits / name / "state" / "flwr" / "florets").lines())


def test_an_unapproved_app_is_refused_and_an_approved_one_does_what_policies_allow(
    federation: Federation, tmp_path: Path
) -> None:
    project = copy_of_the_app(tmp_path / "project")
    with zipfile.ZipFile(tmp_path / "other.fab", "w") as other:
        other.writestr("other.py", "")
    node(federation, "a", "approve", str(tmp_path / "other.fab"))

    status, said = ended(federation, project, tmp_path / "results", f"{CLOVE} min_clients=3")
    assert status == "finished:failed"
    assert "client b cannot take part: the owner of this node does not let it send loss-vectors, models" in said
    (digest,) = set(re.findall(r"owner has not approved this version of the app.*approve ([0-9a-f]{64})", said))
    assert not (federation.kits / "a" / "state" / "flwr" / "apps").exists()
    assert {(line.kind, line.answer) for line in logged(federation, "a")} == {("bundle", "refused")}

    changes = node(federation, "a", "approve", digest)
    assert "added   client_app/app.py" in changes
    assert "removed other.py" in changes
    status, said = ended(federation, project, tmp_path / "results", f"{CLOVE} min_clients=2")
    assert status == "finished:completed", said[-3000:]
    answers = {name: {(line.kind, line.answer) for line in logged(federation, name)} for name in NODES}
    assert answers["a"] >= {(kind, "answered") for kind in ("query.hello", "evaluate.losses", "train", "evaluate")}
    assert answers["b"] == {("query.hello", "answered"), ("query.describe", "answered")}
    assert answers["c"] >= {("train", "answered"), ("evaluate", "refused")}
    (log,) = (tmp_path / "results").rglob("run.log")
    assert "the owner of this node does not let it send evaluations" in log.read_text()
    assert all(line.server == federation.address for line in logged(federation, "a"))
    shown = node(federation, "a", "log", "last=5")
    assert re.search(r"train answered, \d+\.\d s: models 24 \(\d+ B\), facts", shown)
    assert re.search(r"run \d+: \d+ messages, 0 refused; ", shown)


# Consent
ROOT = Path(__file__).parents[1]
HOSPITALS = ("hospital-a", "hospital-b")
WIPE = '''"""A data set that deletes the folder that it is read from."""

import shutil


def load(data_dir, seed, num_clusters):
    """Take the right arguments, and do the wrong thing."""
    shutil.rmtree(data_dir)
'''
IMAGES = "task.partition_options.input_shape=[3,2,2] task.partition_options.num_outputs=2"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the app with a data set that somebody has added to it."""
    copy = copy_of_the_app(tmp_path_factory.mktemp("copy") / "project")
    (copy / "wipe.py").write_text(WIPE)
    return copy


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Two nodes with images, and beside each folder one that is none of the run's business."""
    root = tmp_path_factory.mktemp("deployed")
    with Federation(root / "refusing") as started:
        for number, name in enumerate(HOSPITALS):
            for place in (f"{name}/data/cat", f"{name}/data/dog", f"{name}-elsewhere"):
                (root / place).mkdir(parents=True)
                for image in range(4):
                    Image.new("RGB", (2, 2), (image, number, 7)).save(root / place / f"{image}.png")
        started.add({name: {"data-dir": str(root / name)} for name in HOSPITALS})
        yield started


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        # A library's function is refused before any node is asked.
        (f"task.data=shutil:rmtree {IMAGES}", "task.data='shutil:rmtree': it has no parameter 'data_dir'"),
        (f"task.data=wipe:load {IMAGES}", "task.data=wipe:load: this node does not allow that code"),
        (
            f"task.data_options.classes=[cat,dog,../../hospital-a-elsewhere] {IMAGES}",
            "task.data_options.classes='../../hospital-a-elsewhere': must be the name",
        ),
        (f"task.data_options.classes=[cat,dog] train.local_epochs=20000 {IMAGES}", "local-epochs=20000"),
    ],
    ids=["library", "own code", "path", "cap"],
)
def test_a_node_refuses_what_its_owner_has_not_agreed_to(
    keys: str, reason: str, refusing: Federation, project: Path, tmp_path: Path
) -> None:
    before = {name: sorted(refusing.nodes[name].data.rglob("*")) for name in HOSPITALS}
    settings = f"{keys} min_clients=2 num_rounds=1 start_timeout=120"
    status, said = ended(refusing, project, tmp_path / "results", settings)
    assert status == "finished:failed"
    assert reason in said
    assert {name: sorted(refusing.nodes[name].data.rglob("*")) for name in HOSPITALS} == before
