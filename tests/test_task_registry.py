"""Names, import paths and options of data sets, partitions and models."""

import shutil
import sys
import types

import pytest
from torch.nn import Module

from florets.task.registry import check_options, resolve
from florets.task.task import Task, TaskSpec


def takes_options(
    data, num_clients, num_clusters, rng, share: float = 0.5, sizes: list[int] | None = None, n: int = 1
):
    """Stand in for a partition."""


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known():
    with pytest.raises(
        ValueError, match=r"task.data='digit' is unknown. Did you mean 'digits'\? Known: .*mnist.*module:fu"
    ):
        resolve("data", "digit")


def test_an_import_path_gives_a_users_own_function(monkeypatch):
    module = types.ModuleType("my_package_for_a_test")
    module.build = takes_options
    monkeypatch.setitem(sys.modules, "my_package_for_a_test", module)
    assert resolve("partition", "my_package_for_a_test:build") is takes_options
    with pytest.raises(ValueError, match="has no function 'buidl'"):
        resolve("partition", "my_package_for_a_test:buidl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": 0.1}, r"partition_options.shares: partition 'mine' has no such option. Did you mean 'share'\?"),
        ({"rng": 3}, "partition_options.rng"),
        ({"share": "a half"}, "share='a half' does not fit .* it takes float"),
        ({"sizes": [1, "b"]}, r"sizes=\[1, 'b'\] does not fit"),
        ({"n": 1.5}, "n=1.5 does not fit"),
        ({"n": True}, "n=True does not fit"),
    ],
)
def test_a_wrong_option_is_named_before_work_starts(options, message):
    with pytest.raises(ValueError, match=message):
        check_options(takes_options, options, "partition", "mine")


def test_a_needed_option_that_is_missing_is_named():
    def needs(input_shape, num_outputs, width: int):
        """Stand in for a model."""

    with pytest.raises(ValueError, match=r"model_options.width is missing"):
        check_options(needs, {}, "model", "needs")


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        # The first would delete the folder that a data set is read from.
        (shutil.rmtree, "data_dir"),
        (lambda data_dir, num_clusters: None, "seed"),
        (lambda data_dir, seed, clusters: None, "num_clusters"),
        (lambda *given: None, "data_dir"),
        (lambda **given: None, "data_dir"),
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
