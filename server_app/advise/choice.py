"""The choice among methods by their validation records, and the clients on which a method does badly."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from florets.reports.pooled import PartStatistics
from florets.server_app.advise.compare import QUANTILE, Criterion, effective
from florets.server_app.advise.measures import is_better
from florets.server_app.advise.outcomes import Outcome


def choose(candidates: Sequence[Outcome], criterion: Criterion) -> Outcome:
    """Return the method to use, by the validation records alone: the simplest that none beats by more than chance.

    Parameters
    ----------
    candidates
        In the order of preference, the simplest first; at least one. One without a finite result is taken only where
        none has any.
    """
    candidates = [one for one in candidates if math.isfinite(criterion.figure(one.validation))] or list(candidates)

    # Every further method is another chance to seem better (Bonferroni): all of them together stay at 95 %.
    wider = NormalDist().inv_cdf(1 - 0.025 / max(len(candidates) - 1, 1)) / QUANTILE

    def beaten(one: Outcome) -> bool:
        found = (criterion.difference(other.validation, one.validation) for other in candidates if other is not one)
        return any(gain.mean - wider * gain.half > 0 for gain in found)

    unbeaten = next((one for one in candidates if not beaten(one)), None)
    # Differences that chance allows need not be transitive.
    return unbeaten or best(candidates, criterion)


def best(candidates: Sequence[Outcome], criterion: Criterion) -> Outcome:
    """Return the method with the best figure on the validation records; of equals the first."""
    found = candidates[0]
    for one in candidates[1:]:
        figures = criterion.figure(one.validation), criterion.figure(found.validation)
        if is_better(*figures, criterion.measure):
            found = one
    return found


def low_sites(outcome: Outcome, criterion: Criterion, level: float = 0.01) -> list[str]:
    """Return the clients whose figure is below that of the median client by more than chance.

    The test is one-sided at `level`, divided by the number of clients that are looked at, on test and validation
    records together. It is made of accuracies and areas under the curve: errors in a unit of their own, and R2,
    differ between clients whatever a model does.
    """
    if criterion.measure not in ("accuracy", "balanced_accuracy", "auc"):
        return []
    both = {
        key: found
        for key, test in outcome.test.items()
        if (found := _joined(test, outcome.validation.get(key), criterion)) is not None
    }
    if len(both) < 3:
        return []
    quantile = NormalDist().inv_cdf(1 - level / len(both))
    low = []
    for key, (figure, variance) in both.items():
        rest = sorted(other for name, other in both.items() if name != key)
        # The median: another client that does badly must not hide this one.
        middle, of_middle = rest[len(rest) // 2]
        if middle - figure > quantile * math.sqrt(variance + of_middle):
            low.append(key)
    return sorted(low)


def _joined(
    test: PartStatistics, validation: PartStatistics | None, criterion: Criterion
) -> tuple[float, float] | None:
    """Return a client's figure on test and validation records with its variance; of few records it says little."""
    parts = [one for one in (test, validation) if one is not None and not math.isnan(criterion.own(one))]
    records = math.fsum(effective(one, criterion.measure) for one in parts)
    if not records:
        return None
    mean = math.fsum(effective(one, criterion.measure) * criterion.own(one) for one in parts) / records
    # Source: Agresti and Caffo 2000, one success and one failure added.
    fraction = (mean * records + 1) / (records + 2)
    return fraction, fraction * (1 - fraction) / (records + 2)


def joined_accuracy(outcome: Outcome, clients: Sequence[str]) -> tuple[float, int] | None:
    """Return a method's accuracy on the test records of some clients together, and their number; None without any."""
    found = [outcome.test[key] for key in clients if key in outcome.test]
    records = sum(test.n for test in found)
    if not records or any("accuracy" not in test.scores for test in found):
        return None
    return math.fsum(test.scores["accuracy"] * test.n for test in found) / records, records


def is_below(accuracy: float, records: int, chance: float) -> bool:
    """Say whether a model is right less often than so by more than chance (binomial test, one-sided at 2.5 %)."""
    from scipy.stats import binom  # half a second that only this needs

    return float(binom.cdf(round(accuracy * records), records, chance)) < 0.025
