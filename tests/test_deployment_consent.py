"""Real SuperNodes that a run asks for what their owners have not agreed to: each refuses, and the run says why."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from florets.deploy.federation import Federation
from tests.test_flower_run import copy_of_the_app

ROOT = Path(__file__).parents[1]
NODES = ("hospital-a", "hospital-b")
WIPE = '''"""A data set that deletes the folder that it is read from."""

import shutil


def load(data_dir, seed, num_clusters):
    """Take the right arguments, and do the wrong thing."""
    shutil.rmtree(data_dir)
'''
IMAGES = "task.partition_options.input_shape=[3,2,2] task.partition_options.num_outputs=2"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the app with a data set that somebody has added to it."""
    copy = copy_of_the_app(tmp_path_factory.mktemp("copy") / "project")
    (copy / "wipe.py").write_text(WIPE)
    return copy


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Two nodes with images, and beside each folder one that is none of the run's business."""
    root = tmp_path_factory.mktemp("deployed")
    with Federation(root / "federation") as started:
        for number, name in enumerate(NODES):
            for place in (f"{name}/data/cat", f"{name}/data/dog", f"{name}-elsewhere"):
                (root / place).mkdir(parents=True)
                for image in range(4):
                    Image.new("RGB", (2, 2), (image, number, 7)).save(root / place / f"{image}.png")
        started.add({name: {"data-dir": str(root / name)} for name in NODES})
        yield started


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        # A library's function is refused before any node is asked.
        (f"task.data=shutil:rmtree {IMAGES}", "task.data='shutil:rmtree': it has no parameter 'data_dir'"),
        (f"task.data=wipe:load {IMAGES}", "task.data=wipe:load: this node does not allow that code"),
        (
            f"task.data_options.classes=[cat,dog,../../hospital-a-elsewhere] {IMAGES}",
            "task.data_options.classes='../../hospital-a-elsewhere': must be a name",
        ),
        (f"task.data_options.classes=[cat,dog] train.local_epochs=20000 {IMAGES}", "local-epochs=20000"),
    ],
    ids=["library", "own code", "path", "cap"],
)
def test_a_node_refuses_what_its_owner_has_not_agreed_to(
    keys: str, reason: str, federation: Federation, project: Path, tmp_path: Path
) -> None:
    before = {name: sorted(federation.nodes[name].data.rglob("*")) for name in NODES}
    settings = f"{keys} min_clients=2 num_rounds=1 start_timeout=120"
    run_id = federation.run(
        project, {"experiment": "own_data", "overrides": settings, "results-dir": str(tmp_path / "results")}
    )
    deadline, status, details = time.monotonic() + 900, "", ""
    while not status.startswith("finished"):
        assert time.monotonic() < deadline, federation.log("server")[-3000:]
        time.sleep(5)
        status, details = federation.status(run_id)
    assert status == "finished:failed"
    assert reason in details + federation.log("server")
    assert {name: sorted(federation.nodes[name].data.rglob("*")) for name in NODES} == before
