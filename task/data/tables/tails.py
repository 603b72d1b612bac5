"""Tails of numeric columns: what a site sends of them, and what all sites together make of it: bounds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.description import INNER, ColumnSummary

FloatArray = NDArray[np.float64]

_HEAVY = 20.0
"""Kurtosis from which on a column has heavy tails: a normal has 3, a uniform 1.8, an exponential 9, and of a thousand
records of an exponential fewer than one sample in a hundred reaches 20."""
_OUTER = 0.001
"""Level of the quantiles that values are clipped at, and its complement."""
_WIDTH = 2.56
"""Standard deviations of a normal between the first and the last of the inner levels."""
_FEWEST = 5
"""Records that a tail holds at least, however few a site asks for."""


def figures_of(ordered: FloatArray, mean: float, m2: float, count: int) -> dict[str, Any]:
    """Return what a site sends of the shape of a column, as the fields of a `ColumnSummary`.

    `ordered` are the known values (n,), sorted and not all one; `count` is how many records each tail must hold for
    its quantile to be sent: no extreme record's value is.
    """
    n = len(ordered)
    count = max(count, _FEWEST, math.ceil(_OUTER * n))
    if count >= INNER[0] * n or m2 <= 0:
        return {}
    std = math.sqrt(m2 / n)
    centred = (ordered - mean) / std
    inner = np.clip(ordered, ordered[count - 1], ordered[n - count])
    inner_m2 = float(((inner - inner.mean()) ** 2).sum())
    exact = [float(ordered[round(level * (n - 1))]) for level in INNER]
    # Between the tails values lie closer together, as far as these reach.
    step, fine = rounding(std), rounding((exact[-1] - exact[0]) / _WIDTH or std)
    middle = [round(value / fine) * fine for value in exact]
    low, high = (round(float(ordered[row]) / step) * step for row in (count - 1, n - count))
    return {
        "knots": (min(low, middle[0]), *middle, max(high, middle[-1])),
        "tail": count,
        "inner_mean": float(inner.mean()),
        "inner_m2": inner_m2,
        # A precise figure would say how large the largest value is.
        "skew": float(f"{(centred**3).mean():.2g}"),
        "kurtosis": float(f"{(centred**4).mean():.2g}"),
    }


def rounding(std: float) -> float:
    """Return the step that quantiles are rounded to: a tenth to a half of the spread."""
    step = 10.0 ** math.floor(math.log10(std))
    return step / 2 if std < 5 * step else step


def kurtosis(sites: Sequence[ColumnSummary]) -> float:
    """Return the kurtosis of a column's pooled records, from sites that send figures; 0 where they have one value.

    Of a site that sends no shape, the values are taken for normal.
    """
    known = sum(one.known for one in sites)
    mean = math.fsum(one.known * one.mean for one in sites) / known
    spread = math.sqrt(math.fsum(one.m2 + one.known * (one.mean - mean) ** 2 for one in sites) / known)
    if not spread:
        return 0.0
    fourth = 0.0
    for one in sites:
        std, apart = math.sqrt(one.m2 / one.known) / spread, (one.mean - mean) / spread
        skew, heavy = (one.skew, one.kurtosis) if one.knots else (0.0, 3.0)
        fourth += one.known * (heavy * std**4 + 4 * apart * skew * std**3 + 6 * (apart * std) ** 2 + apart**4)
    return fourth / known


class Pooled:
    """The distribution of a column's pooled records, from the summaries of sites that are in line."""

    def __init__(self, sites: Sequence[ColumnSummary]) -> None:
        self._shaped = [one for one in sites if one.knots]
        self._records = sum(one.known for one in self._shaped)
        self._of_all = sum(one.known for one in sites)
        self._knots = np.array([one.knots for one in self._shaped], dtype=np.float64).reshape(-1, len(INNER) + 2)
        self._outer = np.array([[one.tail / one.known] for one in self._shaped]).reshape(-1, 1)
        self._levels = np.hstack([self._outer, np.tile(INNER, (len(self._shaped), 1)), 1 - self._outer])
        self._weights = np.array([one.known / self._records for one in self._shaped])

    @property
    def is_known(self) -> bool:
        """Whether most records' shape was sent, and most of them have no one value in common."""
        rare = sum(one.known for one in self._shaped if one.knots[1] == one.knots[-2])
        return 2 * self._records > self._of_all and 2 * rare < self._records

    def share_below(self, values: FloatArray) -> FloatArray:
        """Return the share of records below each value (n,); tails beyond what is sent fall as an exponential's."""
        # (sites, values, pieces between knots)
        start, end = self._knots[:, None, :-1], self._knots[:, None, 1:]
        at = values[:, None]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            part = np.where(end > start, np.clip((at - start) / (end - start), 0.0, 1.0), at >= end)
            # Towards the outer knots shares fall by a factor with each step, and not by an amount.
            ratio = self._outer / INNER[0]
            part[:, :, 0] = (ratio ** (1 - part[:, :, 0]) - ratio) / (1 - ratio)
            part[:, :, -1] = (1 - ratio ** part[:, :, -1]) / (1 - ratio)
            inner = self._outer + (part * np.diff(self._levels)[:, None]).sum(axis=2)
            rates = np.log(0.5 / self._outer) / np.abs(self._knots[:, [0, -1]] - self._knots[:, [3]])
            beyond = [self._knots[:, [0]] - values, values - self._knots[:, [-1]]]
            below, above = (
                self._outer * np.exp(-np.maximum(far, 0.0) * rates[:, [side]]) for side, far in enumerate(beyond)
            )
        own = np.where(beyond[0] > 0, below, np.where(beyond[1] > 0, 1 - above, inner))
        return np.asarray(self._weights @ own)

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return the quantiles at these levels, by bisection."""
        lowest, highest = float(self._knots.min()), float(self._knots.max())
        reach = 10 * (highest - lowest)
        low, high = np.full(len(levels), lowest - reach), np.full(len(levels), highest + reach)
        for _ in range(64):
            middle = (low + high) / 2
            is_below = self.share_below(middle) < np.asarray(levels)
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return np.asarray(high)

    def bounds(self) -> tuple[float, float]:
        """Return the quantiles that values are clipped at."""
        low, high = self.quantiles((_OUTER, 1 - _OUTER)).tolist()
        return float(low), float(high)


def is_heavy(kurtosis: float) -> bool:
    """Return whether a column of this kurtosis has heavy tails."""
    return kurtosis > _HEAVY


def clipped(sites: Mapping[str, ColumnSummary], low: float, high: float) -> dict[str, ColumnSummary]:
    """Return the summaries of the sites that sent a shape, as of values that are clipped at their tails."""
    return {
        key: replace(one, mean=min(max(one.inner_mean, low), high), m2=one.inner_m2)
        for key, one in sites.items()
        if one.knots
    }
