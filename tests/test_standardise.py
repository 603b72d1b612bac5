"""Standardised inputs: each folder by its own training set, new data by themselves, and never by too few."""

from pathlib import Path

import numpy as np
import pytest

from florets.deploy.demo_hospitals import CASES, tables, write_folders
from florets.task.data.own import own
from florets.task.data.standardise import Scale, standardised_alone


def write(folder: Path, train: np.ndarray, test: np.ndarray) -> None:
    for name, x in (("train", train), ("test", test)):
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(len(x)) % 2)


def test_columns_get_mean_0_and_deviation_1_of_the_training_set_alone(tmp_path: Path) -> None:
    # Mean 3 and deviation 1; mean 10 and deviation 10; always 7.
    train = np.array([[2.0, 0.0, 7.0], [4.0, 20.0, 7.0]] * 5)
    write(tmp_path, train, np.array([[5.0, 30.0, 7.5]]))
    data = own(tmp_path, 0, 0, standardise=True)
    np.testing.assert_allclose(data.x_train[:2], [[-1, -1, 0], [1, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(data.x_test, [[2, 2, 0.5]], atol=1e-6)
    plain = own(tmp_path, 0, 0)
    np.testing.assert_array_equal(plain.x_train, train.astype(np.float32))


def test_images_are_standardised_by_channel() -> None:
    images = np.random.default_rng(0).random((20, 2, 4, 4), dtype=np.float32) * np.array([1, 9])[None, :, None, None]
    scaled = Scale.of(images.astype(np.float32)).apply(images.astype(np.float32))
    np.testing.assert_allclose(scaled.mean(axis=(0, 2, 3)), [0, 0], atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=(0, 2, 3)), [1, 1], atol=1e-4)
    assert scaled.dtype == np.float32


def test_new_data_are_standardised_by_themselves_if_there_are_enough() -> None:
    x = np.random.default_rng(0).normal(5, 3, (30, 4)).astype(np.float32)
    np.testing.assert_allclose(standardised_alone(x).mean(axis=0), np.zeros(4), atol=1e-5)
    with pytest.raises(ValueError, match="29 samples are too few for that: give a file with at least 30"):
        standardised_alone(x[:29])


def test_the_hospitals_differ_as_their_case_says_and_in_nothing_else(tmp_path: Path) -> None:
    plain = tables("homogeneous", 3)
    for case in CASES:
        found = tables(case, 3)
        same_x = [np.array_equal(found[name][0], plain[name][0]) for name in plain]
        same_y = [np.array_equal(found[name][1], plain[name][1]) for name in plain]
        assert same_x == [True] * 3 + [case != "scales"] * 2
        assert same_y == [True] * 3 + [case != "labels", case not in ("labels", "noisy")]
    flipped = tables("labels", 3)["hospital-e"][1]
    np.testing.assert_array_equal(flipped, 1 - plain["hospital-e"][1])
    assert tables("noisy", 3)["hospital-e"][1].sum() == plain["hospital-e"][1].sum()
    names = write_folders(tmp_path, "scales", 3)
    data = own(tmp_path / names[4], 0, 0, standardise=True)
    np.testing.assert_allclose(data.x_train.std(axis=0), np.ones(30), atol=1e-4)
    with pytest.raises(ValueError, match="case='other' must be one of homogeneous, labels, scales, noisy"):
        tables("other")
