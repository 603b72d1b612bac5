"""Splits of clients' own data: drawn for each client, of every class its share, the same on a real node."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import ConfigRecord, Context, RecordDict
from PIL import Image

from florets.client_app.client import Session
from florets.conf.compose import compose
from florets.engines.own_nodes import own_nodes
from florets.server_app.data_agreement import agree_here, task_of
from florets.strategies.base.federation import with_number
from florets.task.data.splits import split_rows
from florets.task.randomness import client_number
from florets.task.spec import TaskSpec
from florets.task.wire import kinds

KEYS = [f"site {number}" for number in range(8)]


def rng(seed: int = 0) -> np.random.Generator:
    """Return a generator."""
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(20))
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
        (node, with_number(config_of_run, 7, KEYS[3], b"")),
        (node, ConfigRecord({**config_of_run, kinds.CLIENT_NUMBER: number})),
    ]
    for own, settings in messages:
        context = Context(1, 7, own, RecordDict(), {})
        data = Session().task(settings, context).client(0)
        assert torch.equal(data.x_test, here[3].x_test)
        assert torch.equal(data.x_train, here[3].x_train)


def task_spec_of(found: object) -> TaskSpec:
    """Return the task of a run on data that agree."""
    from florets.conf.run_config import task_spec

    return TaskSpec(**{**task_spec(found.config), "table": found.table})  # type: ignore[attr-defined]
