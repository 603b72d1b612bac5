"""Rows of a matrix that is never made as a whole: clients' updates, as averages read them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray


class Rows(Protocol):
    """Rows of a matrix, read one at a time: an array (P, R), or what makes each row when it is asked for."""

    def __len__(self) -> int:
        """Return P."""
        ...

    def __getitem__(self, row: int, /) -> FloatArray:
        """Return one row (R,) in float64."""
        ...


class ScaledRows(Rows, ABC):
    """Rows that can be added without being made first: of large models that is most of a sum's time and memory."""

    @abstractmethod
    def add_scaled(self, rows: IntArray, factors: FloatArray, total: FloatArray) -> None:
        """Add ``factor * self[row]`` of each of some rows, in their order, to `total` (R,) in place."""

    @abstractmethod
    def block(self, rows: IntArray, begin: int, end: int) -> FloatArray:
        """Return columns `begin` to `end` of some rows, in the precision in which they came."""


@dataclass(frozen=True)
class Columns:
    """Some columns of `rows`, those of the mask (R,)."""

    rows: Rows
    mask: BoolArray

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, row: int, /) -> FloatArray:
        """Return one row's entries in these columns."""
        return self.rows[row][self.mask]

    def block(self, rows: IntArray, begin: int, end: int) -> FloatArray:
        """Return some of these columns of some rows."""
        columns = np.flatnonzero(self.mask)[begin:end]
        if not len(columns):
            return np.zeros((len(rows), 0))
        first = int(columns[0])
        return block_of(self.rows, rows, first, int(columns[-1]) + 1)[:, columns - first]


def block_of(rows: Rows, members: IntArray, begin: int, end: int) -> FloatArray:
    """Return columns `begin` to `end` of some rows, in the precision in which they came."""
    if isinstance(rows, ScaledRows | Columns):
        return rows.block(members, begin, end)
    if isinstance(rows, np.ndarray):
        return np.asarray(rows[members, begin:end])
    return np.stack([rows[int(row)][begin:end] for row in members])


def add_weighted(rows: Rows, factors: FloatArray, members: IntArray, total: FloatArray) -> None:
    """Add ``factor * rows[member]`` of each member, in their order, to `total` (R,) in place."""
    # One row after the other: a matrix product would leave the order of summation to the BLAS library.
    if isinstance(rows, ScaledRows):
        rows.add_scaled(members, factors, total)
        return
    for member, factor in zip(members, factors, strict=True):
        total += np.multiply(rows[int(member)], factor)
