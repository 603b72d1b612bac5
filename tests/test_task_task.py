"""Tasks, their descriptions and checks; names, import paths and options of their parts; devices."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import Module

from florets.task.data.dataset import Dataset
from florets.task.device import find_device
from florets.task.partitions.shard import Shard
from florets.task.registry import check_options
from florets.task.task import Task, TaskSpec
from florets.task.training.modules import torch_random

SPEC = TaskSpec(
    data="digits",
    partition="rotation",
    model="mlp",
    loss="cross_entropy",
    num_clients=20,
    num_clusters=4,
    seed=1,
    data_dir="",
    partition_options={"split": "shared"},
)
HERE = "tests.test_task_task" if __name__.startswith("tests.") else __name__


@pytest.fixture(autouse=True)
def seeded():
    with torch_random(np.random.default_rng(0)):
        yield


def changed(**values):
    return dataclasses.replace(SPEC, **values)


def my_data(data_dir, seed, num_clusters, size: int = 12) -> Dataset:
    x = np.random.default_rng(seed).random((size, 3))
    return Dataset(x, np.arange(size) % num_clusters, x, np.arange(size) % num_clusters, num_outputs=num_clusters)


def my_partition(data, num_clients, num_clusters, rng) -> list[Shard]:
    parts = np.array_split(rng.permutation(len(data.x_train)), num_clients)
    return [Shard(i % num_clusters, part, part) for i, part in enumerate(parts)]


def my_model(input_shape, num_outputs) -> nn.Module:
    return nn.Linear(input_shape[0], num_outputs)


def no_module(input_shape, num_outputs):
    return 3


def test_a_description_survives_json_and_equal_ones_have_equal_texts():
    assert TaskSpec.from_json(SPEC.to_json()) == SPEC
    assert json.loads(SPEC.to_json())["partition_options"] == {"split": "shared"}
    assert SPEC.to_json() == changed().to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"colour": 1}, r"unknown keys \['colour'\]"),
        (lambda d: {k: v for k, v in d.items() if k != "loss"}, r"missing keys \['loss'\]"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TaskSpec.from_json(json.dumps(change(json.loads(SPEC.to_json()))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "digitz"}, "task.data='digitz' is unknown. Did you mean 'digits'"),
        ({"model_options": {"hiden": [3]}}, r"task.model_options.hiden: .* Did you mean 'hidden'"),
        ({"num_clients": 3000}, "samples are not enough for num_clients=3000"),
        ({"loss": "reconstruction"}, "model 'mlp' with loss 'reconstruction' does not fit data 'digits'"),
        ({"model": f"{HERE}:no_module"}, "returned a int: return a torch.nn.Module"),
    ],
)
def test_what_is_wrong_is_found_before_any_training(change, message):
    with pytest.raises(ValueError, match=message):
        Task(changed(**change)).check()


def test_a_users_own_data_partition_and_model_are_three_functions():
    spec = changed(
        data=f"{HERE}:my_data",
        partition=f"{HERE}:my_partition",
        model=f"{HERE}:my_model",
        num_clients=4,
        num_clusters=2,
        data_options={"size": 20},
        partition_options={},
    )
    task = Task(spec)
    task.check()
    assert [len(task.client(i).x_train) for i in range(4)] == [5, 5, 5, 5]
    assert task.client(3).cluster == 1


def takes_options(
    data, num_clients, num_clusters, rng, share: float = 0.5, sizes: list[int] | None = None, n: int = 1
):
    """Stand in for a partition."""


def test_where_an_option_takes_a_list_one_value_is_a_list_of_one():
    options = check_options(takes_options, {"sizes": 3, "share": 1}, "partition", "mine")
    assert options == {"sizes": [3], "share": 1}


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        # The first would delete the folder that a data set is read from.
        (shutil.rmtree, "data_dir"),
        (lambda data_dir, seed, /, num_clusters: None, "data_dir"),
    ],
)
def test_a_function_with_other_parameters_is_refused(function, missing):
    with pytest.raises(
        ValueError, match=rf"no parameter '{missing}' .* must be f\(data_dir, seed, num_clusters, \*\*options\)"
    ):
        check_options(function, {}, "data", "mine:load")


@pytest.mark.parametrize("path", ["tests.torchvision_model:net", "tests.own_functions:from_torchvision"])
def test_an_own_model_may_import_torchvision_beside_a_torch_of_another_build(path):
    spec = TaskSpec("digits", "rotation", path, "cross_entropy", 4, 4, 0, "")
    assert isinstance(Task(spec).build_model(), Module)


@pytest.mark.parametrize(
    ("name", "gpus", "apple", "found"),
    [("cpu", 1, True, "cpu"), ("auto", 2, False, "cuda"), ("auto", 0, True, "mps"), ("cuda:1", 2, False, "cuda:1")],
)
def test_a_name_finds_its_device(
    name: str, gpus: int, apple: bool, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(gpus, apple, monkeypatch)
    assert str(find_device(name)) == found


@pytest.mark.parametrize(
    ("name", "gpus", "said"),
    [("cuda", 0, "sees 0 CUDA devices"), ("cuda:2", 2, "sees 2 CUDA devices"), ("mps", 0, "none so named")],
)
def test_a_device_that_is_not_there_is_refused(
    name: str, gpus: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(gpus, False, monkeypatch)
    with pytest.raises(ValueError, match=rf"device={name}.*{said}"):
        find_device(name)


def machine(gpus: int, apple: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
