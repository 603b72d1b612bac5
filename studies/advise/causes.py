"""Reasons why sites differ: their inputs P(x), label shares P(y), or the rule P(y|x), by what the sites sent."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Literal

import numpy as np

from florets.studies.advise.compare import FEW_RECORDS
from florets.studies.advise.outcomes import Moments, Site

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
_ALIKE = 0.15
"""Relative deviation up to which factors of different columns count as one."""
_CROSS = 1.5
"""Loss of another group's model relative to that of the own, from which on the groups follow different rules."""

_MANY, _MOST = 3, 0.8
"""Numeric columns from which on one factor for all of them says something, and the fraction that must have it."""

Kind = Literal["unit", "inputs", "labels", "rule"]


@dataclass(frozen=True)
class ColumnShift:
    """How a column of a site departs from the reference: by standard deviations of its mean, a factor of its spread.

    `factor` is that of its spread and its mean alike where the column is in another unit; None where it is not.
    """

    column: str
    shift: float
    ratio: float
    factor: float | None = None

    @property
    def size(self) -> float:
        """How far it departs, in one number, for sorting."""
        return max(abs(self.shift) / _SHIFT, abs(math.log(self.ratio)) / math.log(_RATIO))


@dataclass(frozen=True)
class Reason:
    """One respect in which some sites differ from the others.

    Attributes
    ----------
    kind
        "unit": inputs times a factor. "inputs": the distribution of the inputs. "labels": the shares of the classes,
        or the level of the target. "rule": what is to be predicted from the same inputs.
    columns
        Of "unit" and "inputs": the columns that differ most, over all of these sites.
    shares
        Of "labels": the share of the class, or the mean of the target, at each site that departs; and elsewhere.
    cross
        Of "rule": mean loss of the other groups' models on these sites' records, and of their own model.
    """

    kind: Kind
    sites: tuple[str, ...]
    columns: tuple[ColumnShift, ...] = ()
    factor: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    elsewhere: float = math.nan
    label: int = 1
    cross: tuple[float, float] | None = None


def differences(sites: Mapping[str, Site], one_class: Sequence[str] = ()) -> list[Reason]:
    """Return in which respects some sites' data differ from those of the others, beyond chance and beyond a trifle.

    The reference of each figure is the site in the middle, weighted by records. Sites with few records or one class
    are not looked at. Where label shares differ, so do the inputs, as far as those of the classes do: differences of
    inputs that label shares can explain are none of their own.
    """
    known = {key: site for key, site in sites.items() if site.records >= FEW_RECORDS and key not in one_class}
    if len(known) < 2:
        return []
    labels = _label_reason(known, NormalDist().inv_cdf(1 - _LEVEL / (2 * len(known))))
    tests = sum(2 * len(site.columns) for site in known.values())
    quantile = NormalDist().inv_cdf(1 - _LEVEL / (2 * max(tests, 1)))
    reasons = []
    if factors := _factors(known):
        shifts = {key: _shifts(key, known, quantile, None) for key in factors}
        columns = _top([one for found in shifts.values() for one in found])
        reasons.append(Reason("unit", tuple(factors), columns, median(factors.values())))
    # What is in another unit is no reference for the others.
    rest = {key: site for key, site in known.items() if key not in factors}
    shifts = {key: found for key in rest if (found := _shifts(key, rest, quantile, labels))}
    return [*reasons, *_input_reasons(shifts, rest), *([labels] if labels else [])]


def _factors(sites: Mapping[str, Site]) -> dict[str, float]:
    """Return the sites whose numeric columns are all wider or all narrower by about one factor, with that factor."""
    found = {}
    for key, site in sites.items():
        ratios = []
        for name, own in site.columns.items():
            others = {other: one.columns[name] for other, one in sites.items() if name in one.columns}
            usual = others[_reference({other: (one.variance, one.count) for other, one in others.items()})]
            if " = " not in name and own.variance > 0 and usual.variance > 0:
                ratios.append(math.log(_wider(own, usual)))
        if len(ratios) < _MANY:
            continue
        middle = median(ratios)
        near = sum(abs(ratio - middle) < abs(middle) / 2 for ratio in ratios)
        if abs(middle) > math.log(_RATIO) and near >= _MOST * len(ratios):
            found[key] = math.exp(middle)
    return found


def _reference(values: Mapping[str, tuple[float, int]]) -> str:
    """Return the site whose value is in the middle, weighted by records."""
    ordered = sorted(values, key=lambda key: values[key][0])
    half = sum(records for _, records in values.values()) / 2
    total = 0.0
    for key in ordered:
        total += values[key][1]
        if total >= half:
            return key
    return ordered[-1]


def _shifts(key: str, sites: Mapping[str, Site], quantile: float, labels: Reason | None) -> list[ColumnShift]:
    """Return the columns in which a site departs from the middle one."""
    found = []
    for name, own in sites[key].columns.items():
        others = {other: site.columns[name] for other, site in sites.items() if name in site.columns}
        if len(others) < 2 or own.count < FEW_RECORDS:
            continue
        middle = others[_reference({other: (one.mean, one.count) for other, one in others.items()})]
        spread = others[_reference({other: (one.variance, one.count) for other, one in others.items()})]
        scale = math.sqrt(spread.variance)
        if not scale or not own.variance:
            continue
        shift, ratio = (own.mean - middle.mean) / scale, _wider(own, spread)
        error = math.sqrt(own.variance / own.count + middle.variance / middle.count) / scale
        log_error = math.sqrt(_TAILS / own.count + _TAILS / spread.count)
        categorical = " = " in name
        moves = abs(shift) > max(_SHIFT, quantile * error)
        widens = not categorical and abs(math.log(ratio)) > max(math.log(_RATIO), quantile * log_error)
        if moves and not widens and labels is not None and _explained(key, name, sites, middle, quantile):
            continue
        if moves or widens:
            found.append(ColumnShift(name, shift, ratio, _factor(own, middle, ratio) if widens else None))
    return found


def _wider(own: Moments, usual: Moments) -> float:
    """Return the factor of a column's spread: of deviation and range, which outliers do not move, the lesser."""
    ratio = math.sqrt(own.variance / usual.variance)
    if not (own.width > 0 and usual.width > 0):
        return ratio
    return min(ratio, own.width / usual.width, key=lambda one: abs(math.log(one)))


def _factor(own: Moments, middle: Moments, ratio: float) -> float | None:
    """Return the factor of another unit: mean and spread have the same one."""
    if not middle.mean:
        return None
    of_mean = own.mean / middle.mean
    return ratio if of_mean > 0 and abs(math.log(of_mean / ratio)) < _ALIKE else None


def _explained(key: str, name: str, sites: Mapping[str, Site], middle: Moments, quantile: float) -> bool:
    """Return whether the classes' shares can explain how far a column's mean departs."""
    own = sites[key]
    if own.counts is None or len(own.counts) != 2:
        return False
    column = own.columns[name]
    shares = {
        other: float(site.counts[1] / site.counts.sum()) for other, site in sites.items() if site.counts is not None
    }
    usual = shares[_reference({other: (share, sites[other].records) for other, share in shares.items()})]
    apart = min(
        math.sqrt(site.columns[name].variance / (shares[other] * (1 - shares[other])))
        for other, site in sites.items()
        if name in site.columns and 0 < shares.get(other, 0) < 1
    )
    error = math.sqrt(column.variance / column.count + middle.variance / middle.count)
    return abs(column.mean - middle.mean) <= abs(shares[key] - usual) * apart + quantile * error


def _input_reasons(shifts: Mapping[str, Sequence[ColumnShift]], sites: Collection[str]) -> list[Reason]:
    """Return the reasons of the inputs: columns in another unit, and other distributions."""
    units = {key: [one for one in found if one.factor is not None] for key, found in shifts.items()}
    others = {key: [one for one in found if one.factor is None] for key, found in shifts.items()}
    reasons: list[Reason] = []
    for kind, by_site in (("unit", units), ("inputs", others)):
        departing = {key: found for key, found in by_site.items() if found}
        if departing:
            columns = _top([one for found in departing.values() for one in found])
            odd = tuple(key for key in sites if key not in departing)
            if kind == "inputs" and 0 < len(odd) < len(departing) and (seen := _from_the_other_side(departing)):
                # The reference is among the few.
                reasons.append(Reason("inputs", odd, seen))
            else:
                reasons.append(Reason(kind, tuple(departing), columns))  # type: ignore[arg-type]
    return reasons


def _from_the_other_side(departing: Mapping[str, Sequence[ColumnShift]]) -> tuple[ColumnShift, ...]:
    """Return how the reference departs in the columns in which all these sites differ from it in the same way."""
    by_column: dict[str, list[ColumnShift]] = {}
    for found in departing.values():
        for one in found:
            by_column.setdefault(one.column, []).append(one)
    common = [
        ColumnShift(column, -median(one.shift for one in own), 1 / median(one.ratio for one in own))
        for column, own in by_column.items()
        if len(own) == len(departing) and len({one.shift > 0 for one in own}) == 1
    ]
    return _top(common)


def _top(found: Sequence[ColumnShift]) -> tuple[ColumnShift, ...]:
    """Return the columns that differ most, each once."""
    largest: dict[str, ColumnShift] = {}
    for one in found:
        if one.column not in largest or one.size > largest[one.column].size:
            largest[one.column] = one
    return tuple(sorted(largest.values(), key=lambda one: -one.size))


def _label_reason(sites: Mapping[str, Site], quantile: float) -> Reason | None:
    """Return which sites have other shares of the classes, or another level of the target."""
    with_counts = {key: site.counts for key, site in sites.items() if site.counts is not None}
    if with_counts:
        width = max(map(len, with_counts.values()))
        found: list[Reason] = []
        for label in [1] if width == 2 else range(width):
            shares = {key: float(counts[label] / counts.sum()) for key, counts in with_counts.items()}
            usual = shares[_reference({key: (share, sites[key].records) for key, share in shares.items()})]
            apart = {
                key: share
                for key, share in shares.items()
                if abs(share - usual) > max(_SHARE, quantile * _error_of_share(usual, sites[key].records))
            }
            if apart:
                found.append(Reason("labels", tuple(apart), shares=apart, elsewhere=usual, label=label))
        return max(found, key=lambda one: len(one.sites), default=None)
    targets = {key: site.target for key, site in sites.items() if site.target is not None}
    if len(targets) < 2:
        return None
    middle = targets[_reference({key: (one.mean, one.count) for key, one in targets.items()})]
    scale = math.sqrt(float(np.median([one.variance for one in targets.values()]))) or 1.0
    levels = {
        key: one.mean
        for key, one in targets.items()
        if abs(one.mean - middle.mean)
        > max(_SHIFT * scale, quantile * math.sqrt(one.variance / one.count + middle.variance / middle.count))
    }
    return Reason("labels", tuple(levels), shares=levels, elsewhere=middle.mean) if levels else None


def _error_of_share(share: float, records: int) -> float:
    # One success and one failure more: of few records a share of 0 has an error as well.
    smoothed = (share * records + 1) / (records + 2)
    return math.sqrt(2 * smoothed * (1 - smoothed) / records)


def rule_of(
    groups: Sequence[Sequence[str]], losses: Mapping[str, Sequence[float]], models: Mapping[str, int], gains: bool
) -> Reason | None:
    """Return that groups follow different rules, where their models' losses on each other's records say so.

    Parameters
    ----------
    losses
        By client, of each group's model on its training records.
    gains
        Whether a model per group predicts better than one for all, also with intercepts, by more than chance.
    """
    if len(groups) < 2:
        return None
    outside = tuple(sorted(key for group in groups[1:] for key in group))
    cross = cross_losses(outside, losses, models)
    if not gains or (cross is not None and cross[0] < _CROSS * cross[1]):
        return None
    return Reason("rule", outside, cross=cross)


def cross_losses(
    clients: Sequence[str], losses: Mapping[str, Sequence[float]], models: Mapping[str, int]
) -> tuple[float, float] | None:
    """Return the mean loss, over some clients, of the best model of another group, and of their own."""
    others, own = [], []
    for key in clients:
        row = losses.get(key, ())
        model = models.get(key)
        if model is None or len(row) < 2 or model >= len(row):
            continue
        own.append(row[model])
        others.append(min(loss for number, loss in enumerate(row) if number != model))
    if not own or not all(map(math.isfinite, (*own, *others))):
        return None
    return math.fsum(others) / len(others), math.fsum(own) / len(own)
