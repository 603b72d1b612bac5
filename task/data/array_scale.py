"""`ArrayScale`: arrays of numbers and a regression's values are standardised by pooled figures, as tables are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.description import Description, TargetSummary
from florets.task.data.tables.pooling import pooled_figures, spread

MOST_FEATURES = 4096
"""Numbers of one input up to which they are standardised: means and spreads travel with each message."""
_DIGITS = 5
"""Digits of a spread that are sent."""


@dataclass(frozen=True)
class ArrayScale:
    """Mean and spread of each number of an input, none where they stay as they are, and of a regression's targets."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    target_mean: float = 0.0
    target_std: float = 1.0

    def __post_init__(self) -> None:
        numbers = [*self.mean, *self.std, self.target_mean, self.target_std]
        if not all(type(one) in (int, float) and math.isfinite(one) for one in numbers) or not all(
            one > 0 for one in (*self.std, self.target_std)
        ):
            raise ValueError("task.data_options.scale: each mean must be a number, and each std one above 0.")
        if len(self.mean) != len(self.std):
            raise ValueError("task.data_options.scale: mean and std must be as many numbers.")

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> "ArrayScale":
        """Return what `to_plain` returned; nothing is scaled for None."""
        try:
            given = dict(values or {})
            lists = {name: tuple(given.get(name, ())) for name in ("mean", "std")}
            return cls(**{**given, **lists})
        except TypeError as error:
            raise ValueError("task.data_options.scale: must have mean, std, target_mean, target_std.") from error

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def inputs(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return standardised inputs (n, width), float32; any other inputs as they are."""
        if not self.mean or x.ndim != 2:
            return x
        if x.shape[1] != len(self.mean):
            raise ValueError(f"the inputs have {x.shape[1]} numbers each, and the run's {len(self.mean)}.")
        return np.asarray((x - np.array(self.mean)) / np.array(self.std), dtype=np.float32)

    def targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return a regression's targets (n,), standardised."""
        return np.asarray((y - self.target_mean) / self.target_std)

    def in_unit(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised values (n,) in the unit that the targets came in."""
        return values.astype(np.float64) * self.target_std + self.target_mean


def pooled_scale(sites: Mapping[str, Description], shape: Sequence[int], is_regression: bool) -> ArrayScale | None:
    """Return the scale of all sites' training records; None where nothing is to be scaled."""
    mean, std = list[float](), list[float]()
    if len(shape) == 1 and all(site.is_real for site in sites.values()):
        sent = {key: site for key, site in sites.items() if site.feature_means}
        for place in range(shape[0] if sent else 0):
            figures = {
                key: _feature(site.train_records, site.feature_means[place], site.feature_m2[place])
                for key, site in sent.items()
            }
            count, middle, m2 = pooled_figures(figures)
            width = spread(count, middle, m2)
            mean.append(_rounded(middle, width))
            std.append(_rounded(width, width))
    targets = {key: site.target for key, site in sites.items() if site.target is not None} if is_regression else {}
    count, middle, m2 = pooled_figures(targets)
    width = spread(count, middle, m2) if count else 1.0
    if not mean and not count:
        return None
    return ArrayScale(tuple(mean), tuple(std), _rounded(middle, width), _rounded(width, width))


def _feature(count: int, mean: float, m2: float) -> TargetSummary:
    return TargetSummary("", numeric=True, whole=False, known=count, distinct=count, mean=mean, m2=m2)


def _rounded(value: float, width: float) -> float:
    """Return a figure in as many digits as matter next to a spread."""
    return float(round(value, _DIGITS - 1 - math.floor(math.log10(width))))
