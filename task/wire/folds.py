"""`RowForm`: how a client's updates on folds of its data are compressed."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from florets.task.wire.records import NotFinite

Upload = Literal["projection", "signs", "full"]
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
    """How a row, the change of the trainable parameters on one fold, is sent.

    Attributes
    ----------
    upload
        ``projection``: each parameter is added, with a random sign, to a random one of `width` entries, and the
        result is scaled to unit length (float16). ``signs``: the signs of `width` random parameters (bits).
        ``full``: all parameters, scaled to unit length (float32).
    width
        Entries of a row.
    size
        Trainable parameters of the model; twice as many where a row holds their exact estimates in addition.

    Source: Charikar, Chen, Farach-Colton 2002 (count sketch): inner products are kept on average, with a variance of
    about 1 / width, as by a projection on Gaussian directions. Deviation: a Gaussian projection costs
    `size` x `width` random numbers, which is more time than the training where a model is large.
    """

    upload: Upload
    width: int
    size: int

    @classmethod
    def of(cls, upload: Upload, width: int | None, size: int, folds: int) -> "RowForm":
        """Return the form of rows of a model with `size` trainable parameters.

        Parameters
        ----------
        width
            None: a fifth of the parameters, at least `LEAST_WIDTH` and at most `LARGEST_WIDTH`, and no more than
            `MOST_BYTES` for all of a client's rows. A projection that would be no smaller than the row is the row.
        folds
            Rows of a client.
        """
        if upload == "signs":
            return cls(upload, min(width or LARGEST_WIDTH, size), size)
        if width is None:
            width = min(LARGEST_WIDTH, max(LEAST_WIDTH, size // 5), MOST_BYTES // (2 * max(folds, 1)))
        if upload == "full" or width >= size:
            return cls("full", size, size)
        return cls(upload, width, size)

    @classmethod
    def read(cls, upload: object, width: int, size: int) -> "RowForm":
        """Return the form that a message or a file names; raise ValueError if it is none."""
        if upload not in get_args(Upload) or not 1 <= width <= size:
            raise ValueError(f"rows of {size} parameters cannot be sent as {upload!r} with {width} entries")
        return cls(upload, width, size)  # type: ignore[arg-type]  # one of the words

    @property
    def dtype(self) -> str:
        """Name of the dtype on the wire."""
        return {"projection": "float16", "signs": "uint8", "full": "float32"}[self.upload]

    @property
    def columns(self) -> int:
        """Columns of the array on the wire: eight signs share a byte."""
        return -(-self.width // 8) if self.upload == "signs" else self.width

    def pack(self, changes: Float32, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return rows as they are sent.

        `changes` (m, size) are those of the trainable parameters on each fold. `rng` is of one seed at all clients:
        it draws what is the same for all of them and all folds.
        """
        if self.upload == "signs":
            places = np.sort(rng.choice(self.size, self.width, replace=False))
            return np.packbits(changes[:, places] > 0, axis=1)
        rows = changes.astype(np.float64)
        if self.upload == "projection":
            places = rng.integers(self.width, size=self.size)
            signs = 2.0 * rng.integers(2, size=self.size) - 1.0
            rows = np.stack([np.bincount(places, signs * row, self.width) for row in rows])
        # By the largest entry first: the squares of very small ones are zero.
        largest = np.abs(rows).max(axis=1, keepdims=True)
        rows /= np.where(largest > 0, largest, 1.0)
        rows /= np.where(largest > 0, np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        return rows.astype(self.dtype)

    def unpack(self, sent: npt.NDArray[Any]) -> Float32:
        """Return rows (m, width) from what was sent; signs are -1 and 1.

        A row that says nothing, all zero or all signs alike, comes back as zeros.
        """
        if self.upload == "signs":
            signs = 2.0 * np.unpackbits(sent, axis=1, count=self.width).astype(np.float32) - 1.0
            # One bit alone is always like itself.
            if self.width > 1:
                signs[np.abs(signs.sum(axis=1)) == self.width] = 0.0
            return signs.astype(np.float32)
        rows = sent.astype(np.float32)
        if not np.isfinite(rows).all():
            raise NotFinite("the rows of the folds hold NaN or infinite values")
        return rows


def without_empty(rows: Float32) -> Float32:
    """Return a client's rows as discovery can use them.

    Where nothing was learned on some folds, the others' mean (1, width) is what there is of the client, as of one
    with few samples: discovery compares as many folds of each client. Where nothing was learned at all, (0, width).
    """
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
