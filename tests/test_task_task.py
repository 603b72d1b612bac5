"""The task as a whole: its description, its clients, and what `check` finds before any training."""

import dataclasses
import json

import numpy as np
import pytest
from torch import nn

from florets.task.data import Dataset
from florets.task.partitions import Shard
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
    """Stand in for a user's own data set."""
    x = np.random.default_rng(seed).random((size, 3))
    return Dataset(x, np.arange(size) % num_clusters, x, np.arange(size) % num_clusters, num_outputs=num_clusters)


def my_partition(data, num_clients, num_clusters, rng) -> list[Shard]:
    """Stand in for a user's own partition."""
    parts = np.array_split(rng.permutation(len(data.x_train)), num_clients)
    return [Shard(i % num_clusters, part, part) for i, part in enumerate(parts)]


def my_model(input_shape, num_outputs) -> nn.Module:
    """Stand in for a user's own model."""
    return nn.Linear(input_shape[0], num_outputs)


def no_module(input_shape, num_outputs):
    """Return what is no module."""
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
        (lambda d: d | {"seed": "1"}, "seed='1' must be of type int"),
        (lambda d: d | {"num_clients": True}, "num_clients=True"),
        (lambda d: d | {"model_options": [1]}, "model_options=.* must be of type dict"),
        (lambda d: [d], "must be a JSON object"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TaskSpec.from_json(json.dumps(change(json.loads(SPEC.to_json()))))


def test_a_client_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="partition id 20 does not exist: the task has num_clients=20"):
        Task(SPEC).client(20)
    with pytest.raises(ValueError, match="partition id -1"):
        Task(SPEC).cluster_of(-1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "digitz"}, "task.data='digitz' is unknown. Did you mean 'digits'"),
        ({"model_options": {"hiden": [3]}}, r"task.model_options.hiden: .* Did you mean 'hidden'"),
        ({"num_clients": 3}, "num_clients=3 is less than task.num_clusters=4"),
        ({"num_clients": 3000}, "of which each client needs one; use num_clients of at most 1436"),
        ({"loss": "squared_error"}, "squared_error needs values"),
        ({"loss": "reconstruction"}, "model 'mlp' with loss 'reconstruction' does not fit data 'digits'"),
        ({"model": "cnn"}, "too small for model cnn"),
        ({"model": f"{HERE}:no_module"}, "returned a int: return a torch.nn.Module"),
        ({"data": "mnist", "data_dir": "/no/such/folder"}, "has no folder MNIST/raw"),
    ],
)
def test_what_is_wrong_is_found_before_any_training(change, message):
    with pytest.raises(ValueError, match=message):
        Task(changed(**change)).check()


def test_a_model_with_too_few_outputs_is_refused():
    few = changed(model=f"{HERE}:two_outputs")
    with pytest.raises(ValueError, match=r"model .* does not fit data 'digits'.*for 10 classes .* but have \(2,\)"):
        Task(few).check()


def two_outputs(input_shape, num_outputs) -> nn.Module:
    """Build a model that is too narrow."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


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
