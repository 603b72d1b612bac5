"""Short sketches of long vectors: a random projection that roughly keeps distances and inner products."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from florets.strategies.core import IntArray

Vectors = Sequence[NDArray[np.floating]] | NDArray[np.floating]
"""Vectors of one length, or the rows of a matrix."""


def sketched(vectors: Vectors, width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return vectors of at most `width` numbers in place of long ones.

    Each entry is added, with a random sign, to a random one of `width` entries. Inner products are kept on average,
    with a relative spread of about 1 / sqrt(width). Vectors that are short enough stay as they are. Values beyond the
    range of float32 are cut off there, and NaN becomes 0.

    Parameters
    ----------
    vectors : sequence of (d,) arrays, or (M, d)
        All of one length.
    width : int
        At least 1.
    rng
        Draws the projection, which depends on it and on d alone.

    Returns
    -------
    (M, min(d, width)) float32

    Source: Charikar, Chen and Farach-Colton 2002 (count sketch).
    """
    length = len(vectors[0]) if len(vectors) else 0
    if length <= width:
        return _in_range(np.array(vectors, dtype=np.float64).reshape(len(vectors), length)).astype(np.float32)
    places: IntArray = rng.integers(width, size=length)
    signs = rng.integers(2, size=length) * 2.0 - 1.0
    # Row by row: all of them together may be as large as every client's model.
    rows = [np.bincount(places, weights=_in_range(vector) * signs, minlength=width) for vector in vectors]
    return _in_range(np.stack(rows)).astype(np.float32)


def _in_range(values: NDArray[np.floating]) -> NDArray[np.float64]:
    most = float(np.finfo(np.float32).max)
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=most, neginf=-most)
    return np.clip(finite, -most, most)
