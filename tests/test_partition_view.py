"""`florets plan --partition`: what it tells, and that nothing is trained."""

from functools import partial

import numpy as np
import pytest

from florets.commands.main import main
from florets.reports.partition import Holdings, cluster_rows, described, tiles_of
from florets.task.partitions.composed import Change
from florets.task.partitions.rotation import turned

# Two clusters of two clients: the first has labels 0 and 1, the second 2 alone.
HELD = Holdings(
    clusters=np.array([0, 0, 1, 1]),
    train=np.array([[8, 0, 0], [0, 8, 0], [0, 0, 4], [0, 0, 12]]),
    test=np.array([[2, 0, 0], [0, 2, 0], [0, 0, 1], [0, 0, 3]]),
    columns=("0", "1", "2"),
    changes={0: "-", 1: "mirrored"},
)


def test_skew_is_the_mean_distance_from_the_labels_of_the_group():
    # All together have fractions 1/4, 1/4, 1/2 of the three labels.
    assert HELD.skew(slice(None)) == pytest.approx((0.75 + 0.75 + 0.5 + 0.5) / 4)
    assert HELD.skew(np.array([0, 1]), np.array([0, 1])) == pytest.approx(0.5)
    assert HELD.skew(np.array([2, 3]), np.array([2, 3])) == 0
    figures = {name: (value, note) for name, value, note in tiles_of(HELD)}
    assert figures["skew"] == ("0.62", "0.25 within clusters")
    assert figures["of a client"] == ("4 to 12, median 8", "tested on 1 to 3, median 2")


def test_the_table_shows_the_clusters():
    assert cluster_rows(HELD)[1:] == [
        ["0", "2", "16", "8", "2", "0.50", "-"],
        ["1", "2", "16", "4 to 12, median 8", "1", "0.00", "mirrored"],
    ]


def test_what_a_cluster_does_is_told_in_words():
    assert described(None) == "-"
    both = Change(mirror=True, angle=90, renamed=np.array([1, 0]))
    assert described(both) == "mirrored, rotated by 90°, labels 1 0"
    assert described(partial(turned, angle=45.0)) == "turned, angle 45"
    assert described(lambda x, y: (x, y)) == "<lambda>"


def test_the_command_tells_who_holds_what_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = "{angles: [0, 90], own_fraction: 0.75, samples_per_client: 40, reuse: clusters}"
    keys = ["task.partition=composed", "task.num_clusters=2", "k=2", "num_clients=4"]
    assert main(["plan", "--partition", *keys, f"task.partition_options={options}"]) == 0
    told = capsys.readouterr().out
    assert "rotated by 90°" in told
    assert not list(tmp_path.iterdir())


def test_folders_of_nodes_are_shown_with_the_clusters_that_they_state(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number, name in enumerate(("north", "south")):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        lines = [f"{a:.3f},{b:.3f},{a + b:.3f}" for a, b in rng.random((30 + 10 * number, 2))]
        (folder / "data.csv").write_text("\n".join(["a,b,sum", *lines]), encoding="utf-8")
    (tmp_path / "data" / "south" / "node.toml").write_text("true-cluster = 1\n", encoding="utf-8")
    keys = ["task=own", "task.data_options.regression=true", "task.loss=squared_error"]
    keys += ["task.partition_options={input_shape: [2], num_outputs: 1}", "k=2", "min_clients=2"]
    assert main(["plan", "--partition", *keys]) == 0
    told = capsys.readouterr().out
    assert "tenths of a client" in told
    rows = [line.split("|")[1].strip() for line in told.splitlines() if line.startswith("|")]
    assert rows[2:] == ["not known", "1"]


def test_what_cannot_be_shared_out_is_refused_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = ["task.partition=composed", "task.num_clusters=1", "k=1"]
    assert main(["plan", "--partition", *keys, "task.partition_options.samples_per_client=500"]) == 2
    assert "there are too few" in capsys.readouterr().err
    assert main(["plan", "--partition", "-m", *keys]) == 2
    assert not list(tmp_path.iterdir())
