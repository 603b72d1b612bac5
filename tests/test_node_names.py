"""Names of clients: printable text reaches tables, plots and pages as it is; formulas and doubles do not start."""

import csv
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.own_nodes import own_nodes
from florets.task.data.tables.declaration import NODE_FILE
from florets.task.node_config import check_node_config

NAMES = (
    *(" lead", "$x_1^2$", "$\\frac$", "%s", "<script>alert(1)<_script>", "Hôpital É", "\\alpha", "a&b", "a,b"),
    *("n" * 200, 'quote"q', "{0}", "😀", "(1)", "_x"),
)
SETTINGS = (
    *("experiment=own_data", "strategy=clove", "k=2", "num_rounds=2", "quiet=true", "task.model=linear"),
    *("task.data_options={regression: true}", "task.loss=squared_error", "train.optimizer=sgd"),
    "task.partition_options={input_shape: [2], num_outputs: 1}",
)


def folder(data: Path, name: str) -> Path:
    made = data / name
    made.mkdir(parents=True)
    x = np.random.default_rng(len(name)).standard_normal((20, 2)).astype(np.float32)
    np.savez(made / "data.npz", x=x, y=x[:, 0] - x[:, 1])
    return made


def nodes(data: Path) -> list[str]:
    return [node["client-id"] for node in own_nodes(compose([*SETTINGS, f"data_dir={data}"]))]


@pytest.mark.slow
@pytest.mark.pictures
def test_a_run_takes_every_printable_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    for name in NAMES:
        folder(data, name)
    with caplog.at_level(logging.WARNING):
        assert main([*SETTINGS, f"data_dir={data}", f"results_dir={tmp_path / 'r'}"]) == 0
    assert "cannot take part" not in caplog.text
    (results,) = (path.parent for path in (tmp_path / "r").rglob("summary.json"))
    assert json.loads((results / "summary.json").read_text())["left_out"] == []
    with (results / "clients.csv").open(newline="") as file:
        assert [row["client"] for row in csv.DictReader(file)] == sorted(NAMES)
    page = (results / "report.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize("name", ["=cmd|1", "two\nlines"])
def test_a_name_that_harms_its_readers_is_refused_before_the_start(name: str, tmp_path: Path) -> None:
    folder(tmp_path, "north")
    folder(tmp_path, name)
    with pytest.raises(ConfigError) as refusal:
        nodes(tmp_path)
    assert f"the client's name {name!a} of {name!a} must" in str(refusal.value)
    assert "Rename it, or write client-id into its node.toml" in str(refusal.value)
    (tmp_path / name / NODE_FILE).write_text('client-id = "south"\n')
    assert sorted(nodes(tmp_path)) == ["north", "south"]


def test_two_folders_of_one_client_are_refused_before_the_start(tmp_path: Path) -> None:
    folder(tmp_path, "north")
    (folder(tmp_path, "south") / NODE_FILE).write_text('client-id = "north"\n')
    with pytest.raises(ConfigError, match="'north' and 'south' are both client 'north'"):
        nodes(tmp_path)


def test_an_unknown_key_of_a_nodes_file_is_refused_before_the_start(tmp_path: Path) -> None:
    (folder(tmp_path, "north") / NODE_FILE).write_text("share_statistics = false\nmax-epochs = 9\n")
    with pytest.raises(ConfigError, match=r"share_statistics: there is no such key. Did you mean share-statistics\?"):
        nodes(tmp_path)


def test_a_slip_of_a_key_in_a_real_nodes_config_is_refused_and_other_apps_keys_pass() -> None:
    check_node_config({"partition-id": 0, "num-partitions": 2, "share-statistics": False, "colour": 1, "maximum": 1})
    for slip in ("share_statistics", "share-statistic", "max-epoch", "max-image-size", "share_confusion", "min-age"):
        with pytest.raises(ValueError, match=f"has {slip}, which is no key; did you mean"):
            check_node_config({slip: False})
