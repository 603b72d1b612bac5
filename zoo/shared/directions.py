"""Directions of the clients' vectors: rows of length 1, and their cosines."""

import numpy as np

from florets.strategies.core import FloatArray
from florets.task.device import one_thread


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Return the rows (M, D) scaled to length 1; a row of zeros stays one."""
    # Divided by the largest entry first: the square of a large one is infinite, and that of a small one 0.
    largest = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.sum(scaled**2, axis=1, keepdims=True))
    units: FloatArray = scaled / np.where(lengths > 0, lengths, 1.0)
    return units


def cosines(vectors: FloatArray, directions: FloatArray | None = None) -> FloatArray:
    """Return the cosine similarity (M, C) of each vector (M, D) with each direction (C, D), 0 with a row of zeros.

    Without `directions` they are the vectors themselves: the result is symmetric, with ones on its diagonal.
    """
    units = unit_rows(vectors)
    others = units if directions is None else unit_rows(directions)
    with one_thread():
        similarity: FloatArray = np.clip(units @ others.T, -1.0, 1.0)
    if directions is None:
        np.fill_diagonal(similarity, units.any(axis=1).astype(np.float64))
    return similarity
