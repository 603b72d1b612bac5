"""Data sets: shapes, ranges, splits, and what is said when files are missing."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from florets.task.data.dataset import Dataset
from florets.task.data.public_images import cifar10, digits, mnist
from florets.task.data.regression import linear, sphere_models

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


@needs_mnist
@pytest.mark.slow
def test_mnist_is_read_whole():
    data = mnist(DATA_DIR, 0, 5)
    assert data.x_train.shape == (60_000, 1, 28, 28)
    assert data.x_test.shape == (10_000, 1, 28, 28)
    assert np.bincount(data.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.asarray(data.x_train).mean() == pytest.approx(0.13066, abs=1e-5)
    assert np.asarray(data.x_train).max() == 1


def test_files_that_are_missing_are_named_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match=r"has no folder MNIST/raw/.*data_dir=<folder>"):
        mnist(tmp_path, 0, 5)
    with pytest.raises(ValueError, match=r"data_dir is empty.*cifar-10-batches-py"):
        cifar10(None, 0, 5)


def idx_files(folder: Path, images: bytes, labels: bytes) -> None:
    (folder / "MNIST" / "raw").mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        (folder / "MNIST" / "raw" / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def idx(*shape: int, values: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">u4").tobytes() + values


def test_idx_files_are_read_without_torchvision(tmp_path):
    pixels = bytes(range(256)) * 6 + bytes(32)
    idx_files(tmp_path, idx(2, 28, 28, values=pixels), idx(2, values=bytes([7, 3])))
    data = mnist(tmp_path, 0, 5)
    assert data.y_test.tolist() == [7, 3]
    np.testing.assert_array_equal(np.asarray(data.x_train).ravel() * 255, np.frombuffer(pixels, dtype=np.uint8))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (idx(1, 28, 28, values=bytes(783)), "its length differs from its header"),
        (idx(1, 27, 28, values=bytes(756)), r"images of 27 x 28 pixels, and it needs 28 x 28"),
    ],
)
def test_an_idx_file_that_is_cut_off_or_of_another_kind_is_refused(tmp_path, images, message):
    idx_files(tmp_path, images, idx(1, values=bytes([7])))
    with pytest.raises(ValueError, match=message):
        mnist(tmp_path, 0, 5)


@pytest.mark.parametrize("delta", [1.0, 0.1, 0.01, 0.001, 0.0003])
def test_true_models_are_unit_vectors_at_distances_from_delta_to_five_delta(delta):
    models = sphere_models(5, 20, delta, np.random.default_rng(3))
    np.testing.assert_allclose(np.linalg.norm(models, axis=1), 1, rtol=1e-12)
    distances = np.linalg.norm(models[:, None] - models[None], axis=2)[np.triu_indices(5, 1)]
    assert distances.min() >= delta * (1 - 1e-9)
    assert distances.max() <= 5 * delta


def test_linear_samples_follow_their_true_model():
    data = linear(None, 1, 5, d=20, delta=1.0, samples_per_cluster=200)
    assert data.x_train.shape == (900, 20)
    assert data.x_test.shape == (100, 20)
    assert data.true_models is not None
    for x, y, group in ((data.x_train, data.y_train, data.group_train), (data.x_test, data.y_test, data.group_test)):
        residual = y - np.sum(x * data.true_models[group], axis=1)
        assert 0.5e-4 < residual.std() < 2e-4
    assert np.bincount(data.group_train).tolist() == [180] * 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.zeros(2, dtype=int)}, "3 inputs, 2 targets and 2 groups"),
        ({"x_test": np.zeros((3, 5))}, r"inputs are \(2,\), test inputs \(5,\)"),
        ({"y_test": np.array([0, 1, 2])}, "labels that are not from 0 to 1"),
    ],
)
def test_a_data_set_that_does_not_fit_together_is_refused(changes, message):
    parts = {name: np.zeros((3, 2)) for name in ("x_train", "x_test")}
    parts |= {name: np.array([0, 1, 1]) for name in ("y_train", "y_test")}
    with pytest.raises(ValueError, match=message):
        Dataset(**(parts | changes), num_outputs=2)


def test_images_are_made_smaller_by_averaging_and_standardised_by_their_train_pixels(monkeypatch):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(256, size=(n, 28, 28)).astype(np.uint8) for n in (30, 20))
    labels = np.arange(30) % 10
    monkeypatch.setattr(
        sys.modules["florets.task.data.public_images"], "read_idx_set", lambda *_: (train, labels, test, labels[:20])
    )
    small, standard = (mnist(None, 0, 2, side=14, standardise=one) for one in (False, True))
    assert small.x_train.shape == (30, 1, 14, 14)
    assert small.x_test[5, 0, 3, 7] == pytest.approx(test[5, 6:8, 14:16].mean() / 255)
    assert standard.x_train.mean(dtype=np.float64) == pytest.approx(0, abs=1e-6)
    assert standard.x_train.std(dtype=np.float64) == pytest.approx(1, abs=1e-6)
    expected = (small.x_test - small.x_train.mean()) / small.x_train.std()
    np.testing.assert_allclose(standard.x_test, expected, rtol=1e-4, atol=1e-5)


def test_gaussian_models_act_on_inputs_of_unit_covariance():
    data = linear(None, 1, 2, d=5, noise=0.0, true_models="gaussian", samples_per_cluster=20_000)
    assert data.x_train.shape == (36_000, 5)
    assert data.true_models.shape == (2, 5)
    residual = data.y_train - np.sum(data.x_train * data.true_models[data.group_train], axis=1)
    assert np.abs(residual).max() < 1e-3
    covariance = data.x_train.T @ data.x_train / len(data.x_train)
    assert np.abs(np.linalg.eigvalsh(covariance) - 1).max() < 0.3
