"""Names, import paths and options of data sets, partitions and models."""

import shutil
import sys
import types

import pytest
from torch.nn import Module

from florets.task.imported import with_torchvision
from florets.task.registry import Kind, call, check_options, names, register_model, resolve
from florets.task.task import Task, TaskSpec


def takes_options(
    data, num_clients, num_clusters, rng, share: float = 0.5, sizes: list[int] | None = None, n: int = 1
):
    """Stand in for a partition."""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("data", ["cifar10", "digits", "fashion_mnist", "linear", "mnist"]),
        (
            "partition",
            ["by_class", "concept_shift", "label_skew_1", "label_skew_2", "label_skew_3", "label_skew_4", "rotation"],
        ),
        ("model", ["autoencoder", "cnn", "linear", "mlp"]),
    ],
)
def test_everything_built_in_is_there(kind: Kind, expected):
    assert set(expected) <= set(names(kind))


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


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="'no_such_package' cannot be imported"):
        resolve("model", "no_such_package:build")


def test_a_name_is_not_taken_twice():
    with pytest.raises(ValueError, match=r"'mlp' is already registered by florets.task.models.mlp.mlp"):
        register_model("mlp")(takes_options)


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


@pytest.mark.parametrize("options", [{}, {"share": 1}, {"sizes": None}, {"sizes": [1, 2], "n": 3}])
def test_right_options_pass(options):
    check_options(takes_options, options, "partition", "mine")


def test_a_choice_is_checked():
    with pytest.raises(ValueError, match="split='sharred' does not fit partition 'rotation'"):
        check_options(resolve("partition", "rotation"), {"split": "sharred"}, "partition", "rotation")


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


def test_a_function_whose_signature_nobody_can_read_is_refused():
    with pytest.raises(ValueError, match="its parameters cannot be read; write a function"):
        check_options(min, {}, "data", "builtins:min")


def test_what_is_called_is_passed_by_keyword(monkeypatch):
    module = types.ModuleType("my_package_for_a_test")
    module.build = lambda num_outputs, width=1, *, input_shape: (input_shape, num_outputs, width)
    monkeypatch.setitem(sys.modules, "my_package_for_a_test", module)
    given = {"input_shape": (2,), "num_outputs": 3}
    assert call("model", "my_package_for_a_test:build", given, {"width": 4}) == ((2,), 3, 4)


@pytest.mark.parametrize("path", ["tests.torchvision_model:net", "tests.own_functions:from_torchvision"])
def test_an_own_model_may_import_torchvision_beside_a_torch_of_another_build(path):
    spec = TaskSpec("digits", "rotation", path, "cross_entropy", 4, 4, 0, "")
    assert isinstance(Task(spec).build_model(), Module)


def test_other_failures_of_a_function_are_passed_on():
    def fails():
        raise RuntimeError("operator torchvision::roi_align does not exist")

    with pytest.raises(RuntimeError, match="roi_align"):
        with_torchvision(fails)
