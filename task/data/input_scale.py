"""Whether inputs that nobody standardises are far from a scale that models learn from."""

import math

import numpy as np

from florets.task.data.dataset import FloatArray
from florets.task.data.tables.description import Scale

FEWEST = 10
"""Records below which nothing is said: a statement on a few records would be one on each of them."""
_LARGE, _SMALL = 10.0, 0.01
"""Mean or spread of a feature that is too large, and largest spread that is too small."""
_APART = 100.0
"""Ratio of the largest spread to the median one."""
_DARK, _BRIGHT = 100.0, 255.0
"""Range of the largest value of pixels."""
_FEWEST_PIXELS = 64


def scale_of(x: FloatArray) -> Scale:
    """Return how the inputs of training records (n, ...) are scaled; see `tables.description.Scale`.

    Spreads are compared with the median of those that are not 0, and in vectors only: in images, and among rare
    categories, single features that hardly vary are common.
    """
    if len(x) < FEWEST:
        return ""
    shape, flat = x.shape[1:], x.reshape(len(x), -1)
    largest = float(flat.max())
    is_image = len(shape) > 1 or math.prod(shape) >= _FEWEST_PIXELS
    if is_image and flat.min() >= 0 and _DARK < largest <= _BRIGHT and bool((flat == np.floor(flat)).all()):
        return "pixels"
    mean, spread = flat.mean(axis=0, dtype=np.float64), flat.std(axis=0, dtype=np.float64)
    varied = spread[spread > 0]
    if not len(varied):
        return "raw" if np.abs(mean).max() > _LARGE else ""
    apart = len(shape) == 1 and varied.max() > _APART * np.median(varied)
    far = max(float(np.abs(mean).max()), float(varied.max())) > _LARGE or varied.max() < _SMALL
    return "raw" if far or apart else ""
