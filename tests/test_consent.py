"""One rule of consent for every import path, and a node that opens nothing outside its data folder."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from flwr.app import ConfigRecord, Context, Message, RecordDict
from PIL import Image

from florets.client_app import node as nodes
from florets.client_app.app import app
from florets.client_app.session import session
from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.consent import import_paths
from florets.conf.presets import OWN_DIR, choices, preset_values
from florets.conf.problems import ConfigError
from florets.engines.local_grid import LocalGrid
from florets.engines.own_nodes import own_nodes
from florets.task.data.own import own
from florets.task.data.texts import ag_news
from florets.task.task import TaskSpec
from florets.task.training.settings import Training
from florets.task.wire import kinds

OWN = {
    "data": "own",
    "partition": "own",
    "model": "linear",
    "partition_options": {"input_shape": [1], "num_outputs": 2},
}
CODE = """
import pathlib
import shutil

import numpy as np
from torch import nn

from florets.task.data.dataset import Dataset
from florets.task.partitions.shard import Shard

pathlib.Path(__file__).with_name("imported").touch()


def load(data_dir, seed, num_clusters):
    shutil.rmtree(data_dir)


def read(data_dir, seed, num_clusters):
    x, y = np.arange(8, dtype=np.float32)[:, None], np.arange(8) % 2
    return Dataset(x, y, x.copy(), y.copy(), num_outputs=2)


def share(data, num_clients, num_clusters, rng, input_shape=(), num_outputs=0):
    return [Shard(-1, np.arange(8), np.arange(8))]


def net(input_shape, num_outputs):
    return nn.Linear(1, 2)
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the mark that is there once `evil_or_good` was imported."""
    (tmp_path / "evil_or_good.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil_or_good", raising=False)
    return tmp_path / "imported"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a node's data folder, which holds a file."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,1\n")
    return tmp_path / "data"


def asked(node: Mapping[str, object], **task: object) -> RecordDict:
    LocalGrid(app, 1)  # lets messages be built
    # Of another task: what an earlier test left is forgotten.
    session.adopt(None)
    spec = TaskSpec(
        **{**OWN, "loss": "cross_entropy", "num_clients": 1, "num_clusters": 0, "seed": 0, "data_dir": ""} | task
    )  # type: ignore[arg-type]
    content = RecordDict({kinds.CONFIG: ConfigRecord({kinds.TASK: spec.to_json(), **Training().record()})})
    return app(Message(content, 2, kinds.HELLO), Context(1, 2, dict(node), RecordDict(), {})).content  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [{}, {"allow": "evil"}])
@pytest.mark.parametrize("part", ["data", "partition", "model"])
def test_a_node_imports_nothing_that_its_owner_has_not_allowed(
    part: str, more: dict[str, object], code: Path, folder: Path
) -> None:
    node = {"data-dir": str(folder), "partition-id": 0, **more}
    with pytest.raises(ValueError, match=rf"task\.{part}=evil_or_good:load: this node .* add allow='evil_or_good'"):
        asked(node, **{part: "evil_or_good:load"})
    assert not code.exists()
    assert (folder / "data.csv").is_file()


@pytest.mark.parametrize("allow", ["evil_or_good", "other, evil_or_good", ["other", "evil_or_good"]])
def test_a_node_calls_what_its_owner_has_allowed(allow: object, code: Path, folder: Path) -> None:
    names = {"data": "evil_or_good:read", "partition": "evil_or_good:share", "model": "evil_or_good:net"}
    told = asked({"data-dir": str(folder), "partition-id": 0, "allow": allow}, **names)
    assert told[kinds.METRICS][kinds.NUM_EXAMPLES] == 8
    assert code.exists()


def test_a_supernode_is_no_simulated_node_whatever_its_config_says(
    code: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "has_process_of_its_own", lambda: True)
    monkeypatch.setattr("florets.client_app.app.has_process_of_its_own", lambda: False)
    with pytest.raises(ValueError, match="this node has no data-dir"):
        asked({"partition-id": 0, "num-partitions": 1}, data="evil_or_good:load", data_dir=str(folder))
    assert (folder / "data.csv").is_file()


def test_a_public_data_set_is_read_through_no_link_that_leads_out(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "MNIST").symlink_to(folder.parent / "elsewhere")
    with pytest.raises(ValueError, match=r"a link points outside the data folder"):
        asked({"data-dir": str(folder), "partition-id": 0}, data="mnist", partition="rotation", partition_options={})


def preset(root: Path, group: str, text: str) -> Path:
    file = root / "presets" / group / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return root / "presets"


PRESET = "defaults: [quickstart]\n"


@pytest.mark.parametrize("command", [["--cfg"], ["advise"], ["-m"], []])
def test_no_command_imports_what_a_preset_names(
    command: list[str],
    code: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    presets = preset(tmp_path, "experiment", PRESET + "task: {data: 'evil_or_good:load'}\n")
    monkeypatch.setenv(OWN_DIR, str(presets))
    assert main([*command, "experiment=mine", f"data_dir={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert "preset mine names code of its author's, task.data=evil_or_good:load; add trust=true" in said
    assert not code.exists()


@pytest.mark.parametrize(
    ("group", "text", "chosen"),
    [
        ("experiment", PRESET + "task: {partition: 'evil_or_good:share'}\n", "experiment=mine"),
        ("experiment", PRESET + "strategy: {name: 'evil_or_good:Mine'}\n", "experiment=mine"),
        (
            "experiment",
            PRESET + "task: {model: '${results_dir}'}\nresults_dir: evil_or_good:net\n",
            "experiment=mine",
        ),
        ("task", "data: evil_or_good:read\nmodel: mlp\nloss: cross_entropy\n", "task=mine"),
    ],
)
def test_every_key_of_a_preset_needs_trust_before_anything_is_imported(
    group: str, text: str, chosen: str, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWN_DIR, str(preset(tmp_path, group, text)))
    with pytest.raises(ConfigError, match=r"names code of its author's, \S+=evil_or_good:\w+; add trust=true"):
        compose([chosen, "trust=false"])
    assert not code.exists()


def test_built_in_presets_name_no_code() -> None:
    assert not any(import_paths(preset_values(experiment)) for experiment in choices("experiment"))


def test_typed_on_the_command_line_a_path_is_used_where_its_signature_fits(
    code: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["task.data=shutil:rmtree", f"data_dir={folder}", f"results_dir={code.parent / 'results'}"]) == 2
    assert "task.data='shutil:rmtree': it has no parameter 'data_dir'" in capsys.readouterr().err
    assert (folder / "data.csv").is_file()


def test_nodes_of_a_dry_run_allow_what_the_command_line_names_and_nothing_else(code: Path, folder: Path) -> None:
    (folder / "node.toml").write_text('allow = "everything"\n')
    given = [f"data_dir={folder.parent}", "k=1", "min_clients=1", "task.partition_options.input_shape=[1]"]
    given += ["task.partition_options.num_outputs=2", "experiment=own_data"]
    assert own_nodes(compose(given))[0]["allow"] == ""
    results = f"results_dir={code.parent / 'results'}"
    given = [*given, "task.data=evil_or_good:read", "task.model=evil_or_good:net", "num_rounds=1", results]
    (node,) = own_nodes(compose(given))
    assert node["allow"] == "evil_or_good"
    assert main([*given, "-q", "strategy=fedavg"]) == 0
    saved = next((code.parent / "results").rglob("config.yaml"))
    assert yaml.safe_load(saved.read_text())["task"]["data"] == "evil_or_good:read"


@pytest.fixture
def node_folder(tmp_path: Path) -> Path:
    """Return a node's data folder, empty; beside it lies a folder that is none of the run's business."""
    for place in ("node", "elsewhere/cat"):
        (tmp_path / place).mkdir(parents=True)
    picture(tmp_path / "elsewhere" / "cat" / "1.png")
    np.savez(tmp_path / "elsewhere" / "data.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    return tmp_path / "node"


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2)).save(path)


def linked(place: str, target: str) -> Callable[[Path], None]:
    def make(node_folder: Path) -> None:
        (node_folder / place).parent.mkdir(parents=True, exist_ok=True)
        (node_folder / place).symlink_to(node_folder.parent / target)

    return make


@pytest.mark.parametrize(
    "make",
    [linked("data.npz", "elsewhere/data.npz"), linked("data/cat", "elsewhere/cat"), linked("data/cat", ".")],
)
def test_links_that_lead_out_are_refused(make: Callable[[Path], None], node_folder: Path) -> None:
    make(node_folder)
    with pytest.raises(ValueError, match="points outside the data folder"):
        own(node_folder, 0, 0, classes=["cat", "0", "1"])


@pytest.mark.parametrize("name", ["../../elsewhere", "", "a/b", "a\0b"])
def test_names_that_a_server_sends_are_no_paths(name: str, node_folder: Path) -> None:
    picture(node_folder / "data" / "cat" / "1.png")
    with pytest.raises(ValueError, match=r"task.data_options.classes=.* must be the name"):
        own(node_folder, 0, 0, classes=["cat", name])
    with pytest.raises(ValueError, match=r"task.data_options.train_file=.* must be the name"):
        ag_news(node_folder, 0, 0, train_file=name)
