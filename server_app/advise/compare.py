"""Differences between two methods on the same clients, with their intervals, and the choice among several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from florets.server_app.advise.outcomes import Figure, Metric, Outcome, mean
from florets.server_app.results.statistics import Spread

FEW_CLIENTS = 10
"""Below this, clients are no sample from which anything follows for others: the interval is over their records."""
_QUANTILE = 1.959964
"""Of the normal distribution, for intervals of 95 %."""


@dataclass(frozen=True)
class Difference:
    """Mean gain of one method over another on the same clients: points of accuracy, or loss saved.

    Attributes
    ----------
    mean
        Above 0 where the first method is better.
    half
        Half the width of the 95 % interval; infinite where nothing is known of it.
    clients
        Clients that both have a result of.
    """

    mean: float
    half: float
    clients: int

    @property
    def is_gain(self) -> bool:
        """Whether the first method is better by more than chance."""
        return self.mean - self.half > 0

    @property
    def is_loss(self) -> bool:
        """Whether the first method is worse by more than chance."""
        return self.mean + self.half < 0


def gains(first: Mapping[str, Figure], second: Mapping[str, Figure], metric: Metric) -> dict[str, float]:
    """Return the gain of the first over the second for every client that has both, by client."""
    factor = 100.0 if metric == "accuracy" else -1.0
    keys = sorted(first.keys() & second.keys())
    return {key: factor * (first[key].value - second[key].value) for key in keys}


def difference(first: Mapping[str, Figure], second: Mapping[str, Figure], metric: Metric) -> Difference:
    """Return the mean gain of the first method over the second, with its 95 % interval.

    Of `FEW_CLIENTS` clients or more, and of losses, the interval is Student's over the clients' paired differences:
    it says what other clients like these would see. A handful of sites says nothing about others, and their
    differences need not be alike (a wrong model may cost one site everything and the others nothing): of accuracies
    of few clients the interval is over the records that these sites tested, whose choice is what is left to chance.

    Source: for few clients the variance of Agresti and Caffo 2000, a difference of two proportions with one success
    and one failure added to each, here averaged over clients. Two methods' mistakes on one client's records are taken
    as independent. They mostly coincide, and the interval is then too wide; where one model is right just where the
    other is wrong, as with labels coded the other way round, it is too narrow, by a factor of sqrt(2) at most.
    """
    found = gains(first, second, metric)
    if not found or not all(map(math.isfinite, found.values())):
        return Difference(math.nan, math.inf, len(found))
    middle = math.fsum(found.values()) / len(found)
    if metric == "accuracy" and len(found) < FEW_CLIENTS:
        variance = math.fsum(_variance(figures[key]) for figures in (first, second) for key in found)
        return Difference(middle, 100 * _QUANTILE * math.sqrt(variance) / len(found), len(found))
    if len(found) < 2:
        return Difference(middle, math.inf, len(found))
    spread = Spread.of(list(found.values()))
    return Difference(middle, spread.high - spread.mean, len(found))


def _fraction(figure: Figure) -> float:
    """Return an accuracy with one success and one failure added: of few records it says little."""
    return (figure.value * figure.records + 1) / (figure.records + 2)


def _variance(figure: Figure) -> float:
    fraction = _fraction(figure)
    return fraction * (1 - fraction) / (figure.records + 2)


def pooled(outcome: Outcome, clients: Sequence[str]) -> Figure | None:
    """Return a method's accuracy on the test records of some clients together; None without any."""
    found = [outcome.test[key] for key in clients if key in outcome.test]
    records = sum(figure.records for figure in found)
    return Figure(math.fsum(one.value * one.records for one in found) / records, records) if records else None


def is_below(figure: Figure, accuracy: float) -> bool:
    """Say whether a model is right less often than so by more than chance (binomial test, one-sided at 2.5 %)."""
    from scipy.stats import binom  # half a second that only this needs

    return float(binom.cdf(round(figure.value * figure.records), figure.records, accuracy)) < 0.025


def choose(candidates: Sequence[Outcome]) -> Outcome:
    """Return the method to use, by the validation records alone: the simplest that none beats by more than chance.

    Parameters
    ----------
    candidates
        In the order of preference, the simplest first; at least one. One without a finite result is taken only where
        none has any.
    """
    candidates = [one for one in candidates if math.isfinite(mean(one.validation))] or candidates

    # Every further method is another chance to seem better (Bonferroni): all of them together stay at 95 %.
    wider = NormalDist().inv_cdf(1 - 0.025 / max(len(candidates) - 1, 1)) / _QUANTILE

    def beaten(one: Outcome) -> bool:
        found = (difference(other.validation, one.validation, one.metric) for other in candidates)
        return any(gain.mean - wider * gain.half > 0 for gain in found)

    unbeaten = [one for one in candidates if not beaten(one)]
    # Differences that chance allows need not be transitive.
    return unbeaten[0] if unbeaten else best(candidates)


def best(candidates: Sequence[Outcome]) -> Outcome:
    """Return the method with the best mean on the validation records; of equals the first."""
    sign = 1 if candidates[0].metric == "accuracy" else -1

    def value(one: Outcome) -> float:
        found = sign * mean(one.validation)
        return found if math.isfinite(found) else -math.inf

    # `max` returns the first of equals.
    return max(candidates, key=value)


def low_sites(outcome: Outcome, level: float = 0.01) -> list[str]:
    """Return the clients on which a method's accuracy is below that on the median of the others by more than chance.

    The test is one-sided at `level`, divided by the number of clients that are looked at, on test and validation
    records together; of losses, whose spread nobody has told, it is never made.
    """
    from scipy.stats import norm  # half a second that only this needs

    if outcome.metric != "accuracy" or len(outcome.test) < 3:
        return []
    both = {key: _joined(figure, outcome.validation.get(key)) for key, figure in outcome.test.items()}
    quantile = float(norm.isf(level / len(both)))
    found = []
    for key, figure in both.items():
        rest = [other for name, other in both.items() if name != key]
        # The median: another client that does badly must not hide this one.
        middle = sorted(rest, key=lambda other: other.value)[len(rest) // 2]
        gap = _fraction(middle) - _fraction(figure)
        if gap > quantile * math.sqrt(_variance(figure) + _variance(middle)):
            found.append(key)
    return sorted(found)


def _joined(test: Figure, validation: Figure | None) -> Figure:
    if validation is None:
        return test
    records = test.records + validation.records
    return Figure((test.value * test.records + validation.value * validation.records) / records, records)
