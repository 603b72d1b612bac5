"""Reasons why sites differ: their inputs P(x), label shares P(y), or the rule P(y|x), by the sites' statistics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Literal

import numpy as np

from florets.server_app.units import gaps
from florets.studies.advise.compare import FEW_RECORDS
from florets.studies.advise.outcomes import Site

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.01
"""Of all tests of all sites and columns together."""
_SHIFT = 0.35
"""Standard deviations that a mean differs by, below which a difference says nothing of how sites work."""
_RATIO = 1.4
"""Factor of a spread, likewise."""
_SHARE = 0.1
"""Difference of a class's share, likewise."""
_TAILS = 2.0
"""Variance of the log of a standard deviation, times the records: that of a distribution with heavy tails."""
_CROSS = 1.5
"""Loss of another group's model relative to that of the own, from which on the groups follow different rules."""
_ROUNDING = 1e-9
"""Spread relative to the mean below which a column has one value."""

_MANY, _MOST = 3, 0.8
"""Numeric columns from which on one factor for all of them says something, and the fraction that must have it."""

Kind = Literal["unit", "inputs", "labels", "rule"]


@dataclass(frozen=True)
class ColumnShift:
    """How a column of a site departs: by standard deviations of its mean, and a factor of its spread."""

    column: str
    shift: float
    ratio: float

    def __str__(self) -> str:
        name, equals, category = self.column.partition(" = ")
        if equals:
            return f"{name} ({category} is {'more' if self.shift > 0 else 'less'} frequent)"
        if abs(self.shift) < 0.2:
            return f"{name} (spread x {self.ratio:.2g})"
        return f"{name} (mean {self.shift:+.1f} standard deviations)"


@dataclass(frozen=True)
class Reason:
    """One respect in which some sites differ from the others.

    `kind`: "unit", all inputs times `factor`; "inputs", their distribution, most of all that of `columns`; "labels",
    the `shares` of class `label` or the mean of the target, at each site that departs and `elsewhere`; "rule", what
    is to be predicted from the same inputs: `cross` is the mean loss of the other groups' models on these sites'
    records, and of their own model.
    """

    kind: Kind
    sites: tuple[str, ...]
    columns: tuple[ColumnShift, ...] = ()
    factor: float = 1.0
    shares: Mapping[str, float] = field(default_factory=dict)
    elsewhere: float = math.nan
    label: int = 1
    cross: tuple[float, float] | None = None


def differences(sites: Mapping[str, Site], one_class: Sequence[str] = ()) -> list[Reason]:
    """Return in which respects some sites' data differ from those of the others, beyond chance and beyond a trifle.

    The reference of each figure is the site in the middle, weighted by records. Sites with few records or one class
    are not looked at, but for the level of a target. Where label shares differ, so do the inputs, as far as those of
    the classes do: differences of inputs that label shares can explain are none of their own.
    """
    several = {key: site for key, site in sites.items() if key not in one_class}
    labels = _level_reason(several) or _share_reason(several)
    of_labels = [labels] if labels else []
    known = {key: site for key, site in several.items() if site.records >= FEW_RECORDS}
    frame = _compared(known)
    if len(known) < 2 or frame.empty:
        return of_labels
    quantile = NormalDist().inv_cdf(1 - _LEVEL / (4 * len(frame)))
    reasons = []
    if factors := _factors(frame):
        reasons.append(Reason("unit", tuple(factors), factor=median(factors.values())))
    # What is in another unit is no reference for the others.
    rest = {key: site for key, site in known.items() if key not in factors}
    shifts = _shifts(_compared(rest), quantile, is_explained=labels is not None)
    if departing := tuple(shifts["site"].unique()):
        reasons.append(Reason("inputs", departing, _top(shifts)))
    return [*reasons, *of_labels]


@np.errstate(divide="ignore", invalid="ignore")
def _compared(sites: Mapping[str, Site]) -> "pd.DataFrame":
    """Return a row for each column of each site, with the moments of the sites in the middle: by mean, by variance.

    `share` is that of the second of two classes, and `usual_share` the middle one.
    """
    import pandas as pd

    binary = {key: one.counts for key, one in sites.items() if one.counts is not None and len(one.counts) == 2}
    shares = {key: float(counts[1] / counts.sum()) for key, counts in binary.items()}
    usual = shares[_middle(shares, sites)] if shares else math.nan
    rows = [
        (key, name, one.count, one.mean, one.variance, one.width, shares.get(key, math.nan), usual)
        for key, site in sites.items()
        for name, one in site.columns.items()
    ]
    moments = ["count", "mean", "variance", "width"]
    frame = pd.DataFrame(rows, columns=["site", "column", *moments, "share", "usual_share"])
    frame = frame.astype({"site": str, "column": str} | dict.fromkeys(frame.columns[2:], float))
    for figure, prefix in (("mean", "middle_"), ("variance", "spread_")):
        ordered = frame.sort_values(figure, kind="stable")
        counts = ordered.groupby("column")["count"]
        upper = ordered[2 * counts.cumsum() >= counts.transform("sum")].drop_duplicates("column")
        frame = frame.join(upper.set_index("column")[moments].add_prefix(prefix), on="column")
    # The factor of the spread: of deviation and range, which outliers do not move, the lesser.
    ratio, of_range = (frame["variance"] / frame["spread_variance"]) ** 0.5, frame["width"] / frame["spread_width"]
    is_less = (frame["width"] > 0) & (frame["spread_width"] > 0) & (np.abs(np.log(of_range)) < np.abs(np.log(ratio)))
    return frame.assign(ratio=ratio.where(~is_less, of_range))


def _middle(values: Mapping[str, float], sites: Mapping[str, Site]) -> str:
    """Return the site whose value is in the middle, weighted by records."""
    ordered = sorted(values, key=lambda key: values[key])
    records = np.cumsum([sites[key].records for key in ordered])
    return ordered[int(np.searchsorted(records, records[-1] / 2))]


def _factors(frame: "pd.DataFrame") -> dict[str, float]:
    """Return the sites whose numeric columns are all wider or all narrower by about one factor, with that factor."""
    numeric = frame[~_is_category(frame) & (frame["variance"] > 0) & (frame["spread_variance"] > 0)]
    ratios = np.log(numeric["ratio"]).groupby(numeric["site"], sort=False)
    middles = {str(key): float(own.median()) for key, own in ratios if len(own) >= _MANY}
    # Persons whose values are all wide, some more and some less, are in no other unit.
    apart = gaps(middles, math.log(_RATIO))
    is_near = {str(key): (own - own.median()).abs() < abs(own.median()) / 2 for key, own in ratios}
    return {
        key: math.exp(middle)
        for key, middle in middles.items()
        if key in apart and abs(middle) > math.log(_RATIO) and is_near[key].mean() >= _MOST
    }


def _is_category(frame: "pd.DataFrame") -> "pd.Series[bool]":
    return frame["column"].str.contains(" = ", regex=False)


@np.errstate(divide="ignore", invalid="ignore")
def _shifts(frame: "pd.DataFrame", quantile: float, is_explained: bool = False) -> "pd.DataFrame":
    """Return the rows that depart from the middle, with `shift` and `ratio`.

    With `is_explained` a mean does not depart as far as the classes' shares can explain it.
    """
    within = (frame["variance"] / (frame["share"] * (1 - frame["share"]))) ** 0.5
    within = within.where((frame["share"] > 0) & (frame["share"] < 1))
    frame = frame.assign(apart=within.groupby(frame["column"]).transform("min"))
    several = frame.groupby("column")["site"].transform("size") > 1
    # Of one value in all records rounding leaves a variance.
    spread = frame[["variance", "spread_variance"]].min(axis=1) ** 0.5
    enough = (frame["count"] >= FEW_RECORDS) & (spread > _ROUNDING * frame["mean"].abs())
    frame = frame[several & enough]
    scale, ratio, distance = frame["spread_variance"] ** 0.5, frame["ratio"], frame["mean"] - frame["middle_mean"]
    error = np.sqrt(frame["variance"] / frame["count"] + frame["middle_variance"] / frame["middle_count"])
    log_error = np.sqrt(_TAILS / frame["count"] + _TAILS / frame["spread_count"])
    moves = distance.abs() > np.maximum(_SHIFT * scale, quantile * error)
    widens = ~_is_category(frame) & (np.abs(np.log(ratio)) > np.maximum(math.log(_RATIO), quantile * log_error))
    if is_explained:
        by_classes = (frame["share"] - frame["usual_share"]).abs() * frame["apart"]
        moves &= ~(distance.abs() <= by_classes + quantile * error)
    departing: pd.DataFrame = frame.assign(shift=distance / scale).loc[moves | widens]
    return departing


def _top(shifts: "pd.DataFrame") -> tuple[ColumnShift, ...]:
    """Return the columns that differ most, each once."""
    size = np.maximum(shifts["shift"].abs() / _SHIFT, np.log(shifts["ratio"]).abs() / math.log(_RATIO))
    largest = shifts.loc[size.sort_values(ascending=False, kind="stable").index].drop_duplicates("column")
    return tuple(
        ColumnShift(str(column), float(shift), float(ratio))
        for column, shift, ratio in largest[["column", "shift", "ratio"]].itertuples(index=False)
    )


def _share_reason(sites: Mapping[str, Site]) -> Reason | None:
    """Return which sites with enough records have other shares of the classes."""
    with_counts = {key: site.counts for key, site in sites.items() if site.counts is not None}
    known = {key: counts for key, counts in with_counts.items() if sites[key].records >= FEW_RECORDS}
    if len(known) < 2:
        return None
    quantile = NormalDist().inv_cdf(1 - _LEVEL / (2 * len(known)))
    width = max(map(len, known.values()))
    found: list[Reason] = []
    for label in [1] if width == 2 else range(width):
        shares = {key: float(counts[label] / counts.sum()) for key, counts in known.items()}
        usual = shares[_middle(shares, sites)]
        least = {key: max(_SHARE, quantile * _error_of_share(usual, sites[key].records)) for key in shares}
        apart = {key: share for key, share in shares.items() if abs(share - usual) > least[key]}
        if apart:
            rest = np.sum([counts for key, counts in with_counts.items() if key not in apart], axis=0)
            found.append(
                Reason("labels", tuple(apart), shares=apart, elsewhere=rest[label] / rest.sum(), label=label)
            )
    return max(found, key=lambda one: len(one.sites), default=None)


def _level_reason(sites: Mapping[str, Site]) -> Reason | None:
    """Return which sites have another level of the target; the usual variance says how uncertain few records are."""
    targets = {
        key: one
        for key, site in sites.items()
        if (one := site.target) is not None and one.count > 1 and math.isfinite(one.mean)
    }
    if len(targets) < 2:
        return None
    quantile = NormalDist().inv_cdf(1 - _LEVEL / (2 * len(targets)))
    middle = targets[_middle({key: one.mean for key, one in targets.items()}, sites)]
    usual = float(np.median([one.variance for one in targets.values()]))
    levels = {}
    for key, one in targets.items():
        error = math.sqrt(max(one.variance, usual) / one.count + max(middle.variance, usual) / middle.count)
        if abs(one.mean - middle.mean) > max(_SHIFT * (math.sqrt(usual) or 1.0), quantile * error):
            levels[key] = one.mean
    rest = [one for key, one in targets.items() if key not in levels]
    elsewhere = math.fsum(one.count * one.mean for one in rest) / sum(one.count for one in rest)
    return Reason("labels", tuple(levels), shares=levels, elsewhere=elsewhere) if levels else None


def _error_of_share(share: float, records: int) -> float:
    # One success and one failure more: of few records a share of 0 has an error as well.
    smoothed = (share * records + 1) / (records + 2)
    return math.sqrt(2 * smoothed * (1 - smoothed) / records)


def rule_of(
    groups: Sequence[Sequence[str]], losses: Mapping[str, Sequence[float]], models: Mapping[str, int], gains: bool
) -> Reason | None:
    """Return that groups follow different rules, where their models' losses on each other's records say so.

    `losses`: by client, of each group's model on its training records. `gains`: whether a model per group predicts
    better than one for all, also with intercepts, by more than chance.
    """
    if len(groups) < 2 or not gains:
        return None
    outside = tuple(sorted(key for group in groups[1:] for key in group))
    known = {key: losses[key] for key in outside if key in models and len(losses.get(key, ())) > max(models[key], 1)}
    if not known:
        return Reason("rule", outside)
    own = float(np.mean([row[models[key]] for key, row in known.items()]))
    others = [min(loss for model, loss in enumerate(row) if model != models[key]) for key, row in known.items()]
    cross = float(np.mean(others)), own
    if not all(map(math.isfinite, cross)):
        return Reason("rule", outside)
    return None if cross[0] < _CROSS * own else Reason("rule", outside, cross=cross)
