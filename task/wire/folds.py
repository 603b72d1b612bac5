"""`RowForm`: how a client's updates on folds of its data are compressed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from florets.task.wire.records import NotFinite

Float32 = npt.NDArray[np.float32]

LARGEST_WIDTH = 1024
"""Entries of a row above which more of them showed no more groups (256 were enough for eight)."""
LEAST_WIDTH = 256
LEARNING_RATE = 0.02
"""Of a fold's training, by Adam, whatever the task's own optimiser is: its steps are of one size in all directions,
so that the noise of an update has many directions and none outweighs the rest. The updates of SGD lie in a few."""
MOST_ESTIMATED = 512
"""Parameters of a linear model up to which rows hold exact estimates: these take the root of a Hessian."""
MOST_BYTES = 15_872
"""Of all rows of a client by default: with their headers at most 16 kB."""


@dataclass(frozen=True)
class RowForm:
    """How a row, the change of the trainable parameters on one fold, is sent, scaled to unit length.

    Each parameter is added, with a random sign, to a random one of `width` entries (float16). Where that would be no
    smaller, the row itself is sent (float32).

    `size` are the model's trainable parameters, or twice as many where a row holds their exact estimates in addition.

    Source: Charikar, Chen, Farach-Colton 2002 (count sketch): inner products are kept on average, with a variance of
    about 1 / width, as by a projection on Gaussian directions. Deviation: a Gaussian projection costs
    `size` x `width` random numbers, which is more time than the training where a model is large.
    """

    width: int
    size: int

    @classmethod
    def of(cls, width: int | None, size: int, folds: int) -> "RowForm":
        """Return the form of a client's rows, by default as wide as a fifth of the parameters within limits."""
        if width is None:
            width = min(LARGEST_WIDTH, max(LEAST_WIDTH, size // 5), MOST_BYTES // (2 * max(folds, 1)))
        return cls(min(width, size), size)

    @classmethod
    def read(cls, width: int, size: int) -> "RowForm":
        """Return the form that a message or a file names; raise ValueError if it is none."""
        if not 1 <= width <= size:
            raise ValueError(f"rows of {size} parameters cannot be sent with {width} entries")
        return cls(width, size)

    @property
    def is_whole(self) -> bool:
        """Whether a row is sent as it is."""
        return self.width == self.size

    @property
    def dtype(self) -> str:
        """Name of the dtype on the wire."""
        return "float32" if self.is_whole else "float16"

    def pack(self, changes: Float32, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return rows of changes (m, size) as they are sent; `rng` is of one seed at all clients."""
        rows = changes.astype(np.float64)
        if not self.is_whole:
            places = rng.integers(self.width, size=self.size)
            signs = 2.0 * rng.integers(2, size=self.size) - 1.0
            rows = np.stack([np.bincount(places, signs * row, self.width) for row in rows])
        # By the largest entry first: the squares of very small ones are zero.
        largest = np.abs(rows).max(axis=1, keepdims=True)
        rows /= np.where(largest > 0, largest, 1.0)
        rows /= np.where(largest > 0, np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        return rows.astype(self.dtype)

    @staticmethod
    def unpack(sent: npt.NDArray[Any]) -> Float32:
        """Return rows (m, width) from what was sent."""
        rows = sent.astype(np.float32)
        if not np.isfinite(rows).all():
            raise NotFinite("the rows of the folds hold NaN or infinite values")
        return rows


def without_empty(rows: Float32) -> Float32:
    """Return a client's rows as discovery can use them: where nothing was learned on some folds, the others' mean."""
    learned = rows.any(axis=1)
    if learned.all():
        return rows
    left = rows[learned].astype(np.float64)
    if len(left) == 0:
        return rows[:0]
    mean: Float32 = (
        (left / np.linalg.norm(left, axis=1, keepdims=True)).mean(axis=0, keepdims=True).astype(np.float32)
    )
    return mean
