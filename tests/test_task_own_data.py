"""Data of one's own: what is read from a folder, what is refused and why, and a server without any data."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import ConfigRecord, Context, RecordDict
from PIL import Image

from florets.client_app.session import Session
from florets.commands import main
from florets.conf.compose import compose
from florets.engines.own_nodes import own_nodes
from florets.server_app.data_agreement import agree_here, task_of
from florets.strategies.base.federation import with_number
from florets.task.data.demo_data import write_folders
from florets.task.data.own import own
from florets.task.data.splits import split_rows
from florets.task.randomness import client_number
from florets.task.spec import TaskSpec
from florets.task.task import Task
from florets.task.wire import kinds
from florets.task.wire.flower import NodeInfo

X = np.arange(24, dtype=np.float32).reshape(8, 3)
Y = np.array([0, 1, 0, 1, 0, 1, 0, 1])
REGRESSION = (
    "experiment=own_data",
    "task.table.regression=true",
    "task.loss=squared_error",
    "task.partition_options={input_shape: [3], num_outputs: 1}",
)
SPEC = TaskSpec(
    data="own",
    partition="own",
    model="mlp",
    loss="cross_entropy",
    num_clients=20,
    num_clusters=0,
    seed=0,
    data_dir="",
    partition_options={"input_shape": [3], "num_outputs": 2},
)


def spec(folder: Path, **changes):
    return dataclasses.replace(SPEC, data_dir=str(folder), **changes)


def read(folder: Path, **options):
    return own(folder, 0, 0, **options)


def table(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def picture(path: Path, value: int, size: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (value, value, value)).save(path)


def test_an_undivided_set_is_split_by_the_seed_and_loses_nothing(tmp_path):
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    first, again, other = (own(tmp_path, seed, 0, test_share=0.25) for seed in (1, 1, 2))
    assert (len(first.x_train), len(first.x_test)) == (6, 2)
    assert sorted(np.concatenate([first.x_train, first.x_test])[:, 0]) == X[:, 0].tolist()
    assert np.array_equal(first.x_test, again.x_test)
    assert not np.array_equal(first.x_test, other.x_test)


def test_images_are_read_with_the_federations_labels_although_a_class_is_missing(tmp_path):
    picture(tmp_path / "train" / "dog" / "1.png", 255)
    picture(tmp_path / "train" / "ant" / "1.png", 0, size=6)
    picture(tmp_path / "test" / "dog" / "1.jpg", 51)
    data = read(tmp_path, classes=["ant", "cat", "dog"], image_size=2)
    assert data.x_train.shape == (2, 3, 2, 2)
    assert sorted(data.y_train) == [0, 2]
    assert data.x_train[data.y_train == 2].min() == 1.0
    assert data.x_test.max() == pytest.approx(0.2)
    assert read(tmp_path, classes=["ant", "cat", "dog"], image_size=2, grayscale=True).x_test.shape == (1, 1, 2, 2)


def make_nothing(folder: Path) -> None:
    pass


def make_half(folder: Path) -> None:
    np.savez(folder / "train.npz", x=X, y=Y)


def make_archive(**arrays):
    return lambda folder: np.savez(folder / "data.npz", **arrays)


def make_pictures(*paths):
    def make(folder: Path) -> None:
        for number, path in enumerate(paths):
            picture(folder / "data" / path, 0, size=2 + number)

    return make


def damaged_picture(folder: Path) -> None:
    (folder / "data" / "cat").mkdir(parents=True)
    (folder / "data" / "cat" / "1.png").write_bytes(b"no picture")


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (make_nothing, {}, r"holds no data set: give a table \(data\.csv\), a NumPy archive"),
        (make_half, {}, "has train.npz but no test.npz: give both, or one undivided set as data.npz"),
        (make_archive(x=X * np.nan, y=Y), {}, "24 of the inputs are not finite numbers, the first in sample 0"),
        (
            make_archive(x=X, y=Y - 0.5),
            {},
            "the target of sample 0 is not a class label, an integer from 0: set task",
        ),
        (make_archive(x=X, y=Y), {"classes": ["0"]}, r"the target of sample 1 is none of the classes \(0\)"),
        (make_pictures("cat/1.png"), {}, "the classes must be named for all of them"),
        (damaged_picture, {"classes": ["cat"]}, "cat: image 1 of 1 by name: the image cannot be read"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_with_the_remedy(tmp_path, make, options, message):
    make(tmp_path)
    with pytest.raises(ValueError, match=message):
        read(tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"input_shape": [4], "num_outputs": 2}, {}, r"inputs have shape \(3,\), but the federation's is \(4,\)"),
        ({"input_shape": [3], "num_outputs": 1}, {"loss": "squared_error"}, "squared_error needs values"),
    ],
)
def test_a_node_whose_data_break_the_agreement_says_so(tmp_path, options, changes, message):
    np.savez(tmp_path / "data.npz", x=X, y=Y * (0 if changes else 1))
    with pytest.raises(ValueError, match=message):
        Task(spec(tmp_path, partition_options=options, **changes)).client(0)


def test_a_server_without_data_builds_and_checks_the_model():
    task = Task(SPEC)
    task.check()
    assert [p.shape[0] for p in task.build_model().parameters()][-1] == 2
    for options, message in (
        ({}, "task.partition_options.input_shape is missing"),
        ({"input_shape": [0], "num_outputs": 2}, r"input_shape=\[0\] must list the sizes"),
        ({"input_shape": [3], "num_outputs": 0}, "num_outputs=0 must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Task(dataclasses.replace(SPEC, partition_options=options)).check()
    with pytest.raises(ValueError, match="does not fit data 'own', whose inputs have shape"):
        Task(dataclasses.replace(SPEC, model="tests.test_task_own_data:too_wide")).check()


def too_wide(input_shape, num_outputs) -> torch.nn.Module:
    return torch.nn.Linear(99, num_outputs)


def test_a_dry_run_names_the_folder_and_says_a_common_cause_once(tmp_path, capsys, caplog):
    for name in ("north", "south", "west"):
        (tmp_path / name).mkdir()
        table(tmp_path / name / "data.csv", "a,b,c,price", *(f"{i},{i % 3},{i * i},{i}" for i in range(9)))
    given = [*REGRESSION, f"data_dir={tmp_path}", f"results_dir={tmp_path.parent / 'results'}", "-q", "min_clients=1"]
    given += ["k=1", "num_rounds=1", "target=cost"]
    assert main.main(given) == 1
    told = capsys.readouterr().err
    assert "3 failed, for example client north (node 2): ValueError" in told
    assert (told.count("has no column"), caplog.text) == (1, "")
    # Where others can start, it is said of those that cannot.
    (tmp_path / "east").mkdir()
    table(tmp_path / "east" / "data.csv", "a,b,c,cost", *(f"{i},{i % 3},{i * i},{i}" for i in range(9)))
    assert main.main(given) == 0
    told = next(record.getMessage() for record in caplog.records if "has no column" in record.getMessage())
    assert told.startswith("client north (node 3), south (node 4), west (node 5) failed: ValueError")


@pytest.mark.slow
def test_a_dry_run_over_folders_in_three_forms_finds_the_stated_clusters(tmp_path, capsys):
    for name, cluster in write_folders(tmp_path / "nodes").items():
        (tmp_path / "nodes" / name / "node.toml").write_text(f"true-cluster = {cluster}\n")
    given = ["experiment=own_digits", f"data_dir={tmp_path / 'nodes'}", f"results_dir={tmp_path / 'results'}", "-q"]
    assert main.main([*given, "num_rounds=4"]) == 0
    assert "ARI 1.00" in capsys.readouterr().out
    clients = next((tmp_path / "results").rglob("clients.csv")).read_text()
    assert [line.split(",")[0] for line in clients.splitlines()[1:]] == [
        "archive-1",
        "archive-4",
        "archives-3",
        "pictures-2",
    ]


KEYS = [f"site {number}" for number in range(8)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("counts", "tested"),
    [
        # Six of ten classes, none of them twice; each of 20 classes of one record alone is needed for training.
        ([3] * 10, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]),
        ([25, 10, 5], [5, 2, 1]),
        ([3, 1, 1], [1, 0, 0]),
        ([2], [1]),
    ],
)
def test_each_class_is_tested_by_its_share_and_left_to_train_on(
    seed: int, counts: list[int], tested: list[int]
) -> None:
    target = np.repeat(np.arange(len(counts)), counts).astype(float)
    train, test = split_rows(target, None, 0.2, rng(seed), False)
    assert sorted([*train, *test]) == list(range(len(target)))
    found = np.bincount(target[test].astype(int), minlength=len(counts))
    assert sorted(found) == sorted(tested)
    if max(counts) > 1:
        assert set(target[train]) == set(target)


def test_values_are_tested_along_their_range_however_many_are_equal() -> None:
    target = np.repeat([0.0, 1.0, 2.0, 3.0], [80, 10, 5, 5])
    for seed in range(10):
        _, test = split_rows(target, None, 0.2, rng(seed), True)
        assert np.bincount(target[test].astype(int)).tolist() == [16, 2, 1, 1]


def write(folder: Path, form: str) -> None:
    """Write 8 equal clients whose samples are sorted by class, three of each of ten."""
    x, y = np.arange(30.0), np.repeat(np.arange(10), 3)
    for key in KEYS:
        own = folder / key
        own.mkdir(parents=True)
        if form == "archive":
            np.savez(own / "data.npz", x=np.stack([x, -x], axis=1), y=y)
        elif form == "table":
            pd.DataFrame({"a": x, "b": np.sin(x), "y": y}).to_csv(own / "data.csv", index=False)
        else:
            for row in range(30):
                place = own / "data" / str(y[row])
                place.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.full((4, 4), 8 * row, dtype=np.uint8)).save(place / f"{row}.png")


@pytest.mark.parametrize("form", ["archive", "table", "images"])
def test_clients_of_one_order_test_different_records_and_classes_and_real_nodes_the_same(
    tmp_path: Path, form: str
) -> None:
    write(tmp_path, form)
    keys = [f"data_dir={tmp_path}", "task.validation_fraction=0.25", "task.table.columns=[a,b]"]
    config = compose(["experiment=own_data", *keys, *(["target=y"] if form == "table" else [])])
    nodes = own_nodes(config)
    found = agree_here(config, nodes)
    spec = TaskSpec(**{**vars(task_spec_of(found)), "data_dir": ""})
    here = [task_of(node, spec).client(0) for node in nodes]
    classes = [frozenset(part.y_test.tolist()) for part in here]
    assert all(len(one) == 6 for one in classes)
    assert len(set(classes)) > 4
    assert len(set.union(*map(set, classes))) == 10
    rows = {tuple(part.x_validation.flatten().tolist()) for part in here if part.x_validation is not None}
    assert len(rows) == len(KEYS)
    # A node that knows its own name, one that is registered under it, and one without any, as later messages say it.
    node = {"data-dir": str(tmp_path / KEYS[3])}
    config_of_run = ConfigRecord({kinds.TASK: spec.to_json(), kinds.SEED: spec.seed})
    number = client_number(KEYS[3])
    messages = [
        ({**node, "client-id": KEYS[3]}, config_of_run),
        (node, with_number(config_of_run, NodeInfo(7, KEYS[3]))),
        (node, ConfigRecord({**config_of_run, kinds.CLIENT_NUMBER: number})),
    ]
    for of_node, settings in messages:
        context = Context(1, 7, of_node, RecordDict(), {})
        data = Session().task(settings, context).client(0)
        assert torch.equal(data.x_test, here[3].x_test)
        assert torch.equal(data.x_train, here[3].x_train)


def task_spec_of(found: object) -> TaskSpec:
    from florets.conf.run_config import task_spec

    return TaskSpec(**{**task_spec(found.config), "table": found.table})  # type: ignore[attr-defined]
