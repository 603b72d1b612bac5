"""Collinear columns of tables: numbers that follow from other columns, in all records or at one site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.preprocessing import NumericInput, Preprocessing

if TYPE_CHECKING:
    import pandas as pd

_LEFT = 1e-3
"""Fraction of a column's variance that other columns do not explain, below which it follows from them: a variance
inflation of 1000, at which a coefficient's standard error is 30 times as large."""
_ROUNDING = 1e-6
_SHARE = 0.02
"""Least coefficient, of standardised columns, of a column that another one follows from."""
_PER_COLUMN = 5
"""Records for each column, from which on none follows from the others by chance."""
_MOST_COLUMNS = 500

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Following:
    """A numeric column that is a linear function of others, but for `left` of its variance."""

    name: str
    of: tuple[str, ...]
    left: float

    @property
    def is_exact(self) -> bool:
        """Whether nothing but rounding is left."""
        return self.left < _ROUNDING


def following(prepared: Preprocessing, frames: Sequence["pd.DataFrame"], also_later: bool = False) -> list[Following]:
    """Return the numeric columns that follow from those before them and from categories; one for each relation.

    Of a column of categories one input is left out: that all of them sum to one is no finding.

    Parameters
    ----------
    prepared
        As the sites agreed.
    frames
        Raw records.
    also_later
        Whether those are meant, too, that only follow where later columns are known.
    """
    plain = tuple(NumericInput(column.name, column.mean, column.std) for column in prepared.numeric)
    words = tuple(replace(column, indicator=False) for column in prepared.categorical)
    prepared = replace(prepared, numeric=plain, categorical=words, standardise="pooled", sites={})
    owners = [(column.name, place > 0) for column in words for place in range(column.width)]
    x = np.concatenate([prepared.inputs(frame).x for frame in frames]).astype(np.float64)
    # Categories first: what follows from them is a number.
    order = [len(plain) + place for place, (_, is_kept) in enumerate(owners) if is_kept]
    order += [place for place in range(len(plain)) if place not in order]
    names = [*(column.name for column in plain), *(name for name, _ in owners)]
    varied = [place for place in order if np.ptp(x[:, place]) > 0]
    if not 1 < len(varied) <= _MOST_COLUMNS or len(x) < _PER_COLUMN * len(varied):
        return []
    categories = len([place for place in varied if place >= len(plain)])
    return _relations(x[:, varied], [names[place] for place in varied], categories, also_later)


def _relations(x: FloatArray, names: Sequence[str], categories: int, also_later: bool) -> list[Following]:
    """Return which columns of x (n, C) follow from those before them; of the first ones, of categories, none is told.

    Each is regressed on those that were kept, by the rows of a Cholesky factor that grows.
    """
    from scipy.linalg import solve_triangular

    correlation = np.atleast_2d(np.corrcoef(x, rowvar=False))
    factor, kept, found = np.zeros((len(names), len(names))), list[int](), list[Following]()
    for place, name in enumerate(names):
        size = len(kept)
        row = solve_triangular(factor[:size, :size], correlation[kept, place], lower=True) if size else np.zeros(0)
        left = 1 - float(row @ row)
        if left > _LEFT:
            factor[size, :size], factor[size, size] = row, left**0.5
            kept.append(place)
        elif place >= categories:
            weights = solve_triangular(factor[:size, :size].T, row, lower=False)
            of = dict.fromkeys(names[kept[index]] for index in np.flatnonzero(np.abs(weights) > _SHARE))
            found.append(Following(name, tuple(of), max(left, 0.0)))
    # What is left may follow from others of which some come later.
    while also_later:
        inverse = np.linalg.inv(correlation[np.ix_(kept, kept)])
        inflated = [at for at, place in enumerate(kept) if place >= categories and inverse[at, at] > 1 / _LEFT]
        if not inflated:
            return found
        last = inflated[-1]
        weights = -np.delete(inverse[last], last) / inverse[last, last]
        place = kept.pop(last)
        of = dict.fromkeys(names[kept[at]] for at in np.flatnonzero(np.abs(weights) > _SHARE))
        found.append(Following(names[place], tuple(of), float(1 / inverse[last, last])))
    return found


def at_sites(prepared: Preprocessing, frames: Mapping[str, Sequence["pd.DataFrame"]]) -> dict[Following, list[str]]:
    """Return what follows in all records together (at no site by name), and what at single sites alone."""
    everywhere = following(prepared, [frame for parts in frames.values() for frame in parts], also_later=True)
    found: dict[Following, list[str]] = {one: [] for one in everywhere}
    common = {one.name for one in everywhere}
    for key, parts in frames.items() if len(frames) > 1 else ():
        for one in following(prepared, parts):
            if one.name not in common:
                found.setdefault(replace(one, left=0.0 if one.is_exact else _LEFT), []).append(key)
    return found
