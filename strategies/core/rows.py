"""Rows of a matrix that is never made as a whole: clients' updates, as averages read them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
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
    def changes(self, rows: IntArray, start: FloatArray) -> Iterator[FloatArray]:
        """Yield ``self[row] - start`` of some rows, in the precision of the rows; the next one takes its place."""

    @abstractmethod
    def columns(self, rows: IntArray, count: int) -> Iterator[FloatArray]:
        """Yield the columns of some rows, at most `count` at a time, as (count, n); else as `changes`."""


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

    def changes(self, rows: IntArray, start: FloatArray) -> Iterator[FloatArray]:
        """Yield the changes of some rows from `start`, of these columns, see `ScaledRows`."""
        whole = np.zeros(len(self.mask))
        whole[self.mask] = start
        yield from (change[self.mask] for change in changes_of(self.rows, rows, whole))

    def columns(self, rows: IntArray, count: int) -> Iterator[FloatArray]:
        """Yield these columns of some rows, see `ScaledRows`."""
        begin = 0
        for found in columns_of(self.rows, rows, len(self.mask), count):
            mine = self.mask[begin : begin + len(found)]
            begin += len(found)
            if mine.any():
                yield found[mine]


def changes_of(rows: Rows, members: IntArray, start: FloatArray) -> Iterator[FloatArray]:
    """Yield each member's change from `start` (R,), one after the other in the same place."""
    if isinstance(rows, ScaledRows | Columns):
        yield from rows.changes(members, start)
    else:
        yield from (rows[int(member)] - start for member in members)


def columns_of(rows: Rows, members: IntArray, size: int, count: int) -> Iterator[FloatArray]:
    """Yield the `size` columns of some rows, at most `count` at a time, as (count, n); the caller may change them."""
    if isinstance(rows, ScaledRows | Columns):
        yield from rows.columns(members, count)
        return
    for begin in range(0, size, count):
        yield np.stack([rows[int(member)][begin : begin + count] for member in members], axis=1)


def add_weighted(rows: Rows, factors: FloatArray, members: IntArray, total: FloatArray) -> None:
    """Add ``factor * rows[member]`` of each member, in their order, to `total` (R,) in place."""
    # One row after the other: a matrix product would leave the order of summation to the BLAS library.
    if isinstance(rows, ScaledRows):
        rows.add_scaled(members, factors, total)
        return
    for member, factor in zip(members, factors, strict=True):
        total += np.multiply(rows[int(member)], factor)
