"""Images kept as bytes are what an array of their scaled values is."""

import copy
import pickle

import numpy as np

from florets.task.data.dataset import Dataset, Pixels
from florets.task.data.vision import pool

VALUES = np.random.default_rng(0).integers(0, 256, (7, 2, 3, 4), dtype=np.uint8)
SCALED = VALUES.astype(np.float32) / np.float32(255)


def test_parts_have_the_bits_of_the_whole() -> None:
    pixels = Pixels(VALUES)
    for rows in (np.array([5, 0, 0]), slice(2, 4), 3):
        np.testing.assert_array_equal(pixels[rows], SCALED[rows], strict=True)
    assert (len(pixels), pixels.shape, pixels.ndim, pixels.dtype) == (7, SCALED.shape, 4, SCALED.dtype)


def test_a_function_of_ones_own_may_use_them_as_an_array() -> None:
    pixels = Pixels(VALUES)
    np.testing.assert_array_equal(np.asarray(pixels), SCALED, strict=True)
    np.testing.assert_array_equal(pixels * 2 - pixels, SCALED * 2 - SCALED)
    np.testing.assert_array_equal(np.concatenate([pixels, SCALED]), np.concatenate([SCALED, SCALED]))
    assert pixels.mean(axis=(1, 2, 3)).tolist() == SCALED.mean(axis=(1, 2, 3)).tolist()
    assert np.asarray(pixels, dtype=np.float64).dtype == np.float64
    for again in (copy.deepcopy(pixels), pickle.loads(pickle.dumps(pixels))):
        np.testing.assert_array_equal(again.values, VALUES)


def test_a_data_set_leaves_them_as_they_are() -> None:
    data = Dataset(Pixels(VALUES), np.arange(7), Pixels(VALUES[:2]), np.arange(2), num_outputs=7)
    assert isinstance(data.x_train, Pixels)
    assert data.input_shape == (2, 3, 4)
    whole = pool(data)
    assert whole.pooled
    assert isinstance(whole.x_train, Pixels)
    np.testing.assert_array_equal(whole.x_train[7:], SCALED[:2])
