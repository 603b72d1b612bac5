"""Data sets: shapes, ranges, splits, and what is said when files are missing."""

import os
from pathlib import Path

import numpy as np
import pytest

from task.data import Dataset, cifar10, digits, linear, mnist
from task.data.linear import true_models

DATA_DIR = Path(os.environ.get("FLORETS_DATA", Path(__file__).parents[1] / "../shared/data"))
needs_mnist = pytest.mark.skipif(
    not (DATA_DIR / "MNIST" / "raw").is_dir(), reason=f"no MNIST under {DATA_DIR}: set FLORETS_DATA to its folder"
)


def test_digits_are_split_class_by_class_and_lose_no_image():
    data = digits(None, seed=0, num_clusters=4)
    assert data.x_train.shape == (1438, 1, 8, 8)
    assert data.x_test.shape == (359, 1, 8, 8)
    assert data.x_train.dtype == np.float32
    assert data.x_train.min() == 0
    assert data.x_train.max() == 1
    of_train, of_test = np.bincount(data.y_train), np.bincount(data.y_test)
    np.testing.assert_array_equal(of_test, np.round(0.2 * (of_train + of_test)))
    assert data.num_outputs == 10


def test_digits_are_the_same_for_every_seed():
    first, second = digits(None, 0, 4), digits(None, 7, 5)
    np.testing.assert_array_equal(first.x_test, second.x_test)
    np.testing.assert_array_equal(first.y_train, second.y_train)


@needs_mnist
def test_mnist_is_read_whole():
    data = mnist(DATA_DIR, 0, 5)
    assert data.x_train.shape == (60_000, 1, 28, 28)
    assert data.x_test.shape == (10_000, 1, 28, 28)
    assert np.bincount(data.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.x_train.mean() == pytest.approx(0.13066, abs=1e-5)
    assert data.x_train.max() == 1


def test_files_that_are_missing_are_named_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match=r"has no folder MNIST/raw/.*data_dir=<folder>"):
        mnist(tmp_path, 0, 5)
    with pytest.raises(ValueError, match=r"data_dir is empty.*cifar-10-batches-py"):
        cifar10(None, 0, 5)


def test_files_that_are_damaged_are_named_with_the_remedy(tmp_path):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"cannot be read .*data_dir=<folder>"):
        mnist(tmp_path, 0, 5)


@pytest.mark.parametrize("delta", [1.0, 0.1, 0.01, 0.001, 0.0003])
def test_true_models_are_unit_vectors_at_distances_from_delta_to_five_delta(delta):
    models = true_models(5, 20, delta, np.random.default_rng(3))
    np.testing.assert_allclose(np.linalg.norm(models, axis=1), 1, rtol=1e-12)
    distances = np.linalg.norm(models[:, None] - models[None], axis=2)[np.triu_indices(5, 1)]
    assert distances.min() >= delta * (1 - 1e-9)
    assert distances.max() <= 5 * delta


def test_a_family_of_true_models_that_cannot_be_ends_with_an_error():
    with pytest.raises(ValueError, match=r"no 5 models on the unit sphere of R\^2 .*lower task.data_options.delta"):
        true_models(5, 2, 1.9, np.random.default_rng(0))


def test_linear_samples_follow_their_true_model():
    data = linear(None, 1, 5, d=20, delta=1.0, samples_per_cluster=200)
    assert data.x_train.shape == (900, 20)
    assert data.x_test.shape == (100, 20)
    assert data.true_models is not None
    for x, y, group in ((data.x_train, data.y_train, data.group_train), (data.x_test, data.y_test, data.group_test)):
        residual = y - np.sum(x * data.true_models[group], axis=1)
        assert 0.5e-4 < residual.std() < 2e-4
    assert np.bincount(data.group_train).tolist() == [180] * 5


def test_linear_is_repeatable_and_changes_with_the_seed():
    first, again, other = linear(None, 1, 3), linear(None, 1, 3), linear(None, 2, 3)
    assert first.x_train.tobytes() == again.x_train.tobytes()
    assert first.y_train.tobytes() == again.y_train.tobytes()
    assert first.x_train.tobytes() != other.x_train.tobytes()


def test_linear_clusters_have_independent_inputs():
    data = linear(None, 1, 2, samples_per_cluster=1000)
    a, b = data.x_train[data.group_train == 0], data.x_train[data.group_train == 1]
    assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("option", "value"), [("d", 1), ("delta", 0.0), ("delta", 2.5), ("noise", -1.0), ("train_share", 1.0)]
)
def test_linear_options_out_of_range_are_named(option, value):
    with pytest.raises(ValueError, match=f"task.data_options.{option}={value} must be"):
        linear(None, 1, 2, **{option: value})


def test_a_data_set_takes_its_class_labels_as_groups():
    x = np.zeros((3, 2))
    data = Dataset(x, np.array([0, 1, 1]), x, np.array([1, 0, 0]), num_outputs=2)
    assert data.group_train.tolist() == [0, 1, 1]
    assert data.x_train.dtype == np.float32
    assert data.input_shape == (2,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.zeros(2, dtype=int)}, "3 inputs, 2 targets and 2 groups"),
        ({"y_train": np.zeros(3)}, "group_train is missing"),
        ({"x_test": np.zeros((3, 5))}, r"shape \(2,\), test inputs \(5,\)"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.zeros(0, dtype=int)}, "the test set is empty"),
        ({"y_test": np.array([0, 1, 2])}, "num_outputs=2 they must be from 0 to 1"),
    ],
)
def test_a_data_set_that_does_not_fit_together_is_refused(changes, message):
    parts = {name: np.zeros((3, 2)) for name in ("x_train", "x_test")}
    parts |= {name: np.array([0, 1, 1]) for name in ("y_train", "y_test")}
    with pytest.raises(ValueError, match=message):
        Dataset(**(parts | changes), num_outputs=2)
