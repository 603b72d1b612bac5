"""Reasons why sites differ: their inputs P(x), label shares P(y), or the rule P(y|x), by the sites' statistics."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class _Usual:
    """A column at the sites that have it: that with the middle mean, that with the middle spread, their number."""

    middle: Moments
    spread: Moments
    sites: int


def _usual(sites: Mapping[str, Site]) -> dict[str, _Usual]:
    """Return the references of each column."""
    columns: dict[str, dict[str, Moments]] = {}
    for key, site in sites.items():
        for name, own in site.columns.items():
            columns.setdefault(name, {})[key] = own
    return {
        name: _Usual(
            own[_reference({key: (one.mean, one.count) for key, one in own.items()})],
            own[_reference({key: (one.variance, one.count) for key, one in own.items()})],
            len(own),
        )
        for name, own in columns.items()
    }


def _reference(values: Mapping[str, tuple[float, int]]) -> str:
    """Return the site whose value is in the middle, weighted by records."""
    ordered = sorted(values, key=lambda key: values[key][0])
    records = np.cumsum([values[key][1] for key in ordered])
    return ordered[int(np.searchsorted(records, records[-1] / 2))]


def _factors(sites: Mapping[str, Site]) -> dict[str, float]:
    """Return the sites whose numeric columns are all wider or all narrower by about one factor, with that factor."""
    usual, factors = _usual(sites), {}
    for key, site in sites.items():
        ratios = [
            math.log(_wider(own, usual[name].spread))
            for name, own in site.columns.items()
            if " = " not in name and own.variance > 0 and usual[name].spread.variance > 0
        ]
        middle = median(ratios) if len(ratios) >= _MANY else 0.0
        near = sum(abs(ratio - middle) < abs(middle) / 2 for ratio in ratios)
        if abs(middle) > math.log(_RATIO) and near >= _MOST * len(ratios):
            factors[key] = math.exp(middle)
    return factors


def _shifts(key: str, sites: Mapping[str, Site], quantile: float, labels: Reason | None) -> list[ColumnShift]:
    """Return the columns in which a site departs from the middle one."""
    shifts, references = [], _usual(sites)
    for name, own in sites[key].columns.items():
        usual = references[name]
        middle, scale = usual.middle, math.sqrt(usual.spread.variance)
        if usual.sites < 2 or own.count < FEW_RECORDS or not scale or not own.variance:
            continue
        shift, ratio = (own.mean - middle.mean) / scale, _wider(own, usual.spread)
        error = math.sqrt(own.variance / own.count + middle.variance / middle.count) / scale
        log_error = math.sqrt(_TAILS / own.count + _TAILS / usual.spread.count)
        moves = abs(shift) > max(_SHIFT, quantile * error)
        is_numeric = " = " not in name
        widens = is_numeric and abs(math.log(ratio)) > max(math.log(_RATIO), quantile * log_error)
        if moves and not widens and labels is not None and _explained(key, name, sites, middle, quantile):
            continue
        if moves or widens:
            shifts.append(ColumnShift(name, shift, ratio, _factor(own, middle, ratio) if widens else None))
    return shifts


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


def _input_reasons(shifts: Mapping[str, Sequence[ColumnShift]], sites: Collection[str]) -> Iterator[Reason]:
    """Yield the reasons of the inputs: columns in another unit, and other distributions."""
    kinds: tuple[Kind, ...] = ("unit", "inputs")
    for kind in kinds:
        of_kind = {
            key: [one for one in own if (one.factor is None) == (kind == "inputs")] for key, own in shifts.items()
        }
        departing = {key: own for key, own in of_kind.items() if own}
        odd = tuple(key for key in sites if key not in departing)
        reverse = _reversed(departing) if kind == "inputs" and 0 < len(odd) < len(departing) else ()
        if reverse:
            # The reference is among the few.
            yield Reason(kind, odd, reverse)
        elif departing:
            yield Reason(kind, tuple(departing), _top([one for own in departing.values() for one in own]))


def _reversed(departing: Mapping[str, Sequence[ColumnShift]]) -> tuple[ColumnShift, ...]:
    """Return how the reference departs in the columns in which all these sites differ from it in the same way."""
    columns: dict[str, list[ColumnShift]] = {}
    for one in (one for own in departing.values() for one in own):
        columns.setdefault(one.column, []).append(one)
    return _top(
        [
            ColumnShift(column, -median(one.shift for one in own), 1 / median(one.ratio for one in own))
            for column, own in columns.items()
            if len(own) == len(departing) and len({one.shift > 0 for one in own}) == 1
        ]
    )


def _top(shifts: Sequence[ColumnShift]) -> tuple[ColumnShift, ...]:
    """Return the columns that differ most, each once."""
    largest: dict[str, ColumnShift] = {}
    for one in sorted(shifts, key=lambda one: -one.size):
        largest.setdefault(one.column, one)
    return tuple(largest.values())


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
