"""Comparison of methods on the same clients and with a constant answer, and the choice among them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from florets.reports.pooled import PartStatistics, TestStatistics, constant, pooled, total_squares
from florets.reports.scores import Part
from florets.studies.advise.measures import FORMS, FloatArray, Name, gain, unit_of, worth
from florets.studies.advise.outcomes import Outcome, Tests
from florets.task.wire.kinds import DIVERGED

FEW_CLIENTS = 10
"""Below this, clients are no sample from which anything follows for others: the interval is over their records.

Clients count by their records (Kish 1965): of 40 clients of whom one has half of all records there are four.
"""
FEW_RECORDS = 30
"""Test records below which a client's own figure is mostly noise: it enters no comparison between clients."""
QUANTILE = 1.959964
"""Of the normal distribution, for intervals of 95 %."""
TRIFLE = 1e-3
"""Difference in R2 or log loss, or in an accuracy, that is none."""


_FAR = 2.0
"""Times the constant answer's error from which a method's results say that it was not trained, and no more."""
_ONE_SIDED = 1.644854 / QUANTILE
"""From the half width of a 95 % interval to a one-sided bound at 95 %."""


def num_effective(tests: Tests) -> float:
    """Return how many clients of one size say as much of others as these do."""
    sizes = np.array([test.n for test in tests.values()], dtype=np.float64)
    return float(sizes.sum() ** 2 / np.square(sizes).sum()) if sizes.any() else 0.0


def is_over_records(tests: Tests) -> bool:
    """Return whether intervals are over the clients' records, of which they send sums, and not over clients."""
    return num_effective(tests) < FEW_CLIENTS and any(test.sums is not None for test in tests.values())


@dataclass(frozen=True)
class Difference:
    """Gain of one method over another on the same clients, positive where the first is better.

    `half` is half the width of the 95 % interval; infinite where nothing is known of it.
    """

    mean: float
    half: float

    @property
    def is_gain(self) -> bool:
        """Whether the first method is better by more than chance."""
        return self.mean - self.half > 0

    @property
    def is_loss(self) -> bool:
        """Whether the first method is worse by more than chance."""
        return self.mean + self.half < 0


@dataclass(frozen=True)
class Criterion:
    """What methods are compared by: a figure over the records of all clients together.

    A client's own figure says little where it has few test records, and a mean over clients is then mostly noise.
    `seconds` are measures that are shown in addition; clients of `one_class` enter no comparison, for a constant is
    right there. `unit` is the squared error in the target's unit for one of the training loss, `spread` the variance
    of the targets: they stand in for the sums that clients with very few test records do not send.
    """

    measure: Name
    seconds: tuple[Name, ...] = ()
    one_class: tuple[str, ...] = ()
    unit: float = math.nan
    spread: float = math.nan

    @classmethod
    def of(
        cls, measure: Name, tests: Tests, one_class: Collection[str], seconds: Collection[Name] = ()
    ) -> "Criterion":
        """Return the criterion for clients with these tests; `one_class` names those with records of one class."""
        known = [test for test in tests.values() if test.sums is not None and "loss" in test.scores]
        unit = spread = math.nan
        if known and measure == "r2":
            losses = math.fsum(test.n * test.scores["loss"] for test in known)
            errors = math.fsum(test.n * test.scores["rmse"] ** 2 for test in known)
            unit = errors / losses if losses else math.nan
            spread = total_squares(known) / sum(test.n for test in known)
        return cls(measure, tuple(seconds), tuple(one_class), unit, spread)

    def own(self, test: PartStatistics) -> float:
        """Return a client's own figure; NaN where it has none, infinitely bad where its model diverged."""
        if test.scores.get("loss", 0.0) >= DIVERGED:
            return -math.inf if FORMS[self.measure].higher else math.inf
        # A client that sends no sums has no log loss; its loss is the same.
        other = test.scores.get("loss", math.nan) if self.measure == "log_loss" else math.nan
        return test.scores.get(self.measure, other)

    def compared(self, tests: Tests) -> Tests:
        """Return the tests by which methods are compared."""
        return {key: test for key, test in tests.items() if key not in self.one_class}

    def figure(self, tests: Tests) -> float:
        """Return the figure that methods are compared by, over all records."""
        tests = self.compared(tests)
        if self.measure == "auc":
            return pooled(tests.values(), "auc")
        known = self._terms(tests)
        return float(self._ratio(known.upper.sum(), known.lower.sum())) if len(known.upper) else math.nan

    def _terms(self, tests: Tests) -> "_Terms":
        """Return what each client adds to numerator and denominator of the figure."""
        known = [(test, error) for test in tests.values() if not math.isnan(error := self._error(test))]
        counts = np.array([test.n for test, _ in known], dtype=np.float64)
        with np.errstate(invalid="ignore"):
            upper = counts * np.array([error for _, error in known], dtype=np.float64)
        if self.measure != "r2":
            return _Terms(upper, counts, 0 * counts, counts)
        # Deviations of the targets: within each client, and of its mean from that of all.
        sums = [None if test.sums is None else test.sums.sums for test, _ in known]
        own = np.array([self.spread * n if one is None else one[1] for n, one in zip(counts, sums, strict=True)])
        has_mean = np.array([one is not None for one in sums], dtype=bool)
        means = np.array([0.0 if one is None else one[0] for one in sums])
        if has_mean.any():
            means = np.where(has_mean, means - np.average(means[has_mean], weights=counts[has_mean]), 0.0)
        return _Terms(upper, own + counts * np.square(means), counts * means, counts * has_mean)

    def _error(self, test: PartStatistics) -> float:
        """Return a client's mean per record of what the measure sums up."""
        if self.measure not in ("r2", "rmse"):
            return self.own(test)
        if test.scores.get("loss", 0.0) >= DIVERGED:
            return math.inf
        rmse = test.scores.get("rmse")
        return self.unit * test.scores.get("loss", math.nan) if rmse is None else rmse**2

    def _ratio(self, upper: FloatArray | float, lower: FloatArray | float) -> FloatArray | float:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.asarray(upper, dtype=np.float64) / lower
        return 1 - ratio if self.measure == "r2" else np.sqrt(ratio) if self.measure == "rmse" else ratio

    def difference(self, first: Tests, second: Tests) -> Difference:
        """Return the gain of the first method over the second on the same records, with its 95 % interval.

        Of `FEW_CLIENTS` effective clients or more the interval is over clients: it says what other clients like these
        would see. A handful of sites says nothing about others, and their differences need not be alike: the interval
        is then over the records that these sites have, by the bootstrap replicates that each sends (of the same
        resamples for every method, so that differences are paired).

        Source: over clients the jackknife of the paired difference (Efron 1982), which leaves out all records of a
        client at a time; of R2 over all records of a few sites see `_error_of_joint_r2`.
        """
        keys = sorted(
            key
            for key in self.compared(first).keys() & second.keys()
            if not math.isnan(self._error(first[key])) and not math.isnan(self._error(second[key]))
        )
        # Of very few records a client sends no sums: they would be the records.
        with_sums = [key for key in keys if first[key].sums is not None and second[key].sums is not None]
        over_records = is_over_records({key: first[key] for key in keys}) and bool(with_sums)
        keys = with_sums if over_records else keys
        first, second = ({key: tests[key] for key in keys} for tests in (first, second))
        mean = gain(self.figure(first), self.figure(second), self.measure)
        return self._difference(mean, first, second, over_records)

    def over(self, first: Tests, reference: float) -> Difference:
        """Return the gain of a method over a fixed number, with its 95 % interval as in `difference`."""
        first = self.compared(first)
        mean, over_records = gain(self.figure(first), reference, self.measure), is_over_records(first)
        with_sums = {key: test for key, test in first.items() if test.sums is not None}
        return self._difference(mean, with_sums if over_records else first, {}, over_records)

    def _difference(self, mean: float, first: Tests, second: Tests, over_records: bool) -> Difference:
        """Return a gain of the first over the second method, or over a fixed number, with its interval."""
        if not first or not math.isfinite(mean):
            return Difference(math.nan, math.inf)
        if over_records:
            return Difference(mean, QUANTILE * self._error_over_records(first, second))
        without = self._without_each(first)
        return Difference(mean, self._half(without - self._without_each(second) if second else without))

    def _half(self, without: FloatArray) -> float:
        """Return half the width of an interval from figures without each client; of a few by Student's t."""
        count = len(without)
        if count < 2:
            return math.inf
        error = float(np.sqrt((count - 1) / count * np.square(without - without.mean()).sum()))
        quantile = QUANTILE
        if count < FEW_CLIENTS:
            from scipy.stats import t  # slow to import, and needed here alone

            quantile = float(t.ppf(0.975, count - 1))
        return quantile * unit_of(self.measure) * error

    def _without_each(self, tests: Tests) -> FloatArray:
        """Return the figure without each of the clients."""
        known = self._terms(tests)
        # The common mean moves as well.
        moved = np.square(known.shifts) / np.maximum(known.counts.sum() - known.counts, 1.0)
        lower = known.lower.sum() - known.lower - moved
        return np.asarray(self._ratio(known.upper.sum() - known.upper, lower))

    def _error_over_records(self, first: Tests, second: Tests) -> float:
        """Return the standard error of the gain by the clients' replicates; infinite where one sends none."""
        if self.measure == "r2":
            return _error_of_joint_r2(first, second)
        values = [gains for key, test in first.items() if len(gains := self._replicates(test, second.get(key)))]
        if len(values) < len(first):
            return math.inf
        means = np.average(np.stack(values), axis=0, weights=[test.n for test in first.values()])
        return float(means.std(ddof=1))

    def _replicates(self, first: PartStatistics, second: PartStatistics | None) -> FloatArray:
        """Return the gain in each resample of a client's records; empty without replicates."""
        own = first.replicates.get(self.measure)
        other = np.zeros(1) if second is None else second.replicates.get(self.measure)
        if own is None or other is None:
            return np.empty(0)
        return gain(1.0, 0.0, self.measure) * (own.astype(np.float64) - other.astype(np.float64))


@dataclass(frozen=True)
class _Terms:
    """What each client (M,) adds to numerator and denominator of a figure over all records.

    Of R2 also records times the mean of the targets, from the common one, and the records that this mean is of.
    """

    upper: FloatArray
    lower: FloatArray
    shifts: FloatArray
    counts: FloatArray


def _error_of_joint_r2(first: Tests, second: Tests) -> float:
    """Return the standard error of a gain in R2 over all records together; infinite without replicates.

    It is the bootstrap's of the difference between the methods' sums of squared errors, of the same resamples within
    each client, in units of the total sum of squares. Without `second`, R2 is compared with a fixed number.

    Deviation: the total is not resampled, for clients do not send the resampled means that it takes. Whether two
    methods differ does not depend on it; where they differ by much of it, the interval is wider than with it.
    """
    total = total_squares(first.values())
    squares = _resampled_squares(first)
    others = _resampled_squares(second) if second else np.zeros(1)
    if squares is None or others is None or not total > 0:
        return math.inf
    return float((squares - others).std(ddof=1) / total)


def _resampled_squares(tests: Tests) -> FloatArray | None:
    """Return the sum of squared errors over all clients in each replicate (B,); None where a client has none."""
    own = [(test.n, test.replicates.get("rmse")) for test in tests.values()]
    known = [n * np.square(rmse.astype(np.float64)) for n, rmse in own if rmse is not None]
    return np.sum(known, axis=0) if known and len(known) == len(own) else None


class _Fixed(PartStatistics):
    """A client's test of the constant answer: its figure is the same in every resample."""

    @property
    def replicates(self) -> dict[str, NDArray[np.float32]]:
        return {name: np.full(1, figure) for name, figure in self.scores.items()}


@dataclass(frozen=True)
class ConstantAnswer:
    """Figures of the answer that ignores its input, by client and over all records; none without sums of tests."""

    measure: Name
    tests: Mapping[Part, Tests] = field(default_factory=dict)
    pooled: Mapping[Part, float] = field(default_factory=dict)
    seconds: Mapping[Name, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, measure: Name, statistics: Mapping[str, TestStatistics], seconds: Collection[Name] = ()
    ) -> "ConstantAnswer":
        """Return it for clients with these tests; without figures for the training loss, which has no constant."""
        tests: dict[Part, Tests] = {}
        over_records: dict[Part, float] = {}
        parts: tuple[Part, ...] = ("test", "validation")
        for part in parts if measure != "loss" and statistics else ():
            known = constant(statistics, measure, part)  # type: ignore[arg-type]  # the loss has none, see above
            over_records[part] = known.pooled
            tests[part] = {
                key: _Fixed((test := statistics[key].parts[part]).n, {measure: figure}, test.sums)
                for key, figure in known.clients.items()
                if not math.isnan(figure)
            }
        more = {name: constant(statistics, name).pooled for name in seconds}  # type: ignore[arg-type]  # as above
        return cls(measure, tests, over_records, more)

    def figure(self, criterion: Criterion, part: Part = "test") -> float:
        """Return the figure that methods are compared by; NaN where there is none.

        Clients with very few records of a part send no counts of them: the figure of the other part stands in, for
        both are drawn alike.
        """
        parts: tuple[Part, ...] = (part, "test", "validation")
        known = [criterion.figure(self.tests.get(one, {})) for one in parts]
        if self.measure == "r2":
            known = [self.pooled.get(one, math.nan) for one in parts]
        return next((one for one in known if math.isfinite(one)), math.nan)

    def beaten_by(self, tests: Tests, criterion: Criterion, part: Part) -> Difference:
        """Return the gain of a method over the constant answer, with its 95 % interval.

        It is paired by client where a constant's figure adds up over clients and all of them have it.
        """
        own = criterion.compared(self.tests.get(part, {}))
        if self.measure == "r2" or not criterion.compared(tests).keys() <= own.keys():
            return criterion.over(tests, self.figure(criterion, part))
        return criterion.difference(tests, own)

    def is_beaten(self, tests: Tests, criterion: Criterion, part: Part) -> bool:
        """Return whether a method is better by more than chance (one-sided at 5 %), or has the only figure."""
        if not math.isfinite(self.figure(criterion, part)):
            return math.isfinite(criterion.figure(tests))
        over = self.beaten_by(tests, criterion, part)
        return over.mean > (_ONE_SIDED * over.half if math.isfinite(over.half) else 0)

    def is_far_better(self, tests: Tests, criterion: Criterion, part: Part) -> bool:
        """Return whether the constant answer's error is less than half of a method's: nobody would use that."""
        constant, figure = self.figure(criterion, part), criterion.figure(tests)
        if criterion.measure == "r2":
            return 1 - figure > _FAR * (1 - constant)
        return not FORMS[criterion.measure].higher and figure > _FAR * constant


def choose(candidates: Sequence[Outcome], criterion: Criterion) -> Outcome:
    """Return the method to use, by the validation records alone: the simplest that none beats by more than chance.

    `candidates`: in the order of preference, the simplest first; at least one. One without a finite result is taken
    only where none has any.
    """
    candidates = [one for one in candidates if math.isfinite(criterion.figure(one.validation))] or list(candidates)

    # Every further method is another chance to seem better (Bonferroni): all of them together stay at 95 %.
    wider = NormalDist().inv_cdf(1 - 0.025 / max(len(candidates) - 1, 1)) / QUANTILE

    def beaten(one: Outcome) -> bool:
        found = (criterion.difference(other.validation, one.validation) for other in candidates if other is not one)
        # Two models that are nearly one differ by next to nothing on every record, beyond chance and of no use.
        scale = abs(criterion.figure(one.validation)) if criterion.measure == "loss" else 1.0
        trifle = TRIFLE * scale * unit_of(criterion.measure)
        return any(it.mean - wider * it.half > 0 and it.mean >= trifle for it in found)

    # Differences that chance allows need not be transitive.
    return next((one for one in candidates if not beaten(one)), None) or best(candidates, criterion)


def best(candidates: Sequence[Outcome], criterion: Criterion) -> Outcome:
    """Return the method with the best figure on the validation records; of equals the first."""
    return max(candidates, key=lambda one: worth(criterion.figure(one.validation), criterion.measure))


def joined_accuracy(outcome: Outcome, clients: Sequence[str]) -> tuple[float, int] | None:
    """Return a method's accuracy on the test records of some clients together, and their number; None without any."""
    found = [outcome.test[key] for key in clients if key in outcome.test]
    records = sum(test.n for test in found)
    if not records or any("accuracy" not in test.scores for test in found):
        return None
    return math.fsum(test.scores["accuracy"] * test.n for test in found) / records, records
