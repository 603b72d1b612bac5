"""The constant answer (most frequent class, mean): what every method must beat before it is advised."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from florets.reports.pooled import Constant, PartStatistics, TestStatistics, constant
from florets.server_app.advise.compare import FEW_CLIENTS, QUANTILE, Criterion, Difference, error_of_joint_r2
from florets.server_app.advise.measures import Name, gain
from florets.server_app.advise.outcomes import Part, Tests

_ONE_SIDED = 1.644854 / QUANTILE
"""From the half width of a 95 % interval to a one-sided bound at 95 %."""


@dataclass(frozen=True)
class ConstantAnswer:
    """Figures of the answer that does not look at its input.

    Attributes
    ----------
    measure
        Of the figures.
    figures
        By part of the records; none where no client sends sums.
    sizes
        By part and client, a test to take the records from.
    """

    measure: Name
    figures: Mapping[Part, Constant] = field(default_factory=dict)
    sizes: Mapping[Part, Tests] = field(default_factory=dict)

    @classmethod
    def of(cls, measure: Name, statistics: Mapping[str, TestStatistics]) -> "ConstantAnswer":
        """Return it for clients with these tests; without figures for the training loss, which has no constant."""
        if measure == "loss" or not statistics:
            return cls(measure)
        parts: tuple[Part, ...] = ("test", "validation")
        figures = {part: constant(statistics, measure, part) for part in parts}
        sizes = {
            part: {key: one.parts[part] for key, one in statistics.items() if part in one.parts} for part in parts
        }
        return cls(measure, figures, sizes)

    def tests(self, part: Part) -> dict[str, PartStatistics]:
        """Return each client's figure; those without one are left out."""
        found = self.figures.get(part)
        if found is None:
            return {}
        return {
            key: PartStatistics(self.sizes[part][key].n, {self.measure: figure}, self.sizes[part][key].sums)
            for key, figure in found.clients.items()
            if not math.isnan(figure)
        }

    def figure(self, criterion: Criterion, part: Part = "test") -> float:
        """Return the figure that methods are compared by; NaN where there is none."""
        if part not in self.figures:
            return math.nan
        return self.figures[part].pooled if criterion.together else criterion.figure(self.tests(part))

    def beaten_by(self, tests: Tests, criterion: Criterion, part: Part) -> Difference:
        """Return the gain of a method over the constant answer, with its 95 % interval."""
        own, tests = self.tests(part), criterion.compared(tests)
        if criterion.together:
            mean = gain(criterion.figure(tests), self.figure(criterion, part), self.measure)
            keys = sorted(tests)
        else:
            keys = sorted(key for key in tests.keys() & own.keys() if not math.isnan(criterion.own(tests[key])))
            one, other = ({key: group[key] for key in keys} for group in (tests, own))
            mean = gain(criterion.figure(one), criterion.figure(other), self.measure)
        if not math.isfinite(mean):
            return Difference(math.nan, math.inf, len(keys))
        error = self._error({key: tests[key] for key in keys}, own, criterion)
        return Difference(mean, QUANTILE * error if math.isfinite(error) else math.inf, len(keys))

    def _error(self, tests: Tests, own: Tests, criterion: Criterion) -> float:
        """Return the standard error of the gain; the constant answer's own figures are taken as they are."""
        if len(tests) >= FEW_CLIENTS:
            if criterion.together:
                without = [criterion.figure({k: test for k, test in tests.items() if k != key}) for key in tests]
                scaled = np.array([gain(figure, 0.0, self.measure) for figure in without])
                count = len(scaled)
                return float(np.sqrt((count - 1) / count * np.square(scaled - scaled.mean()).sum()))
            return criterion.error_over_clients(tests, own)
        if criterion.is_joint_r2:
            return error_of_joint_r2(tests)
        fixed = {key: np.full(1, own[key].scores[self.measure]) if key in own else np.zeros(1) for key in tests}
        return criterion.error_over_records(tests, fixed)

    def is_beaten(self, tests: Tests, criterion: Criterion, part: Part) -> bool:
        """Return whether a method is better by more than chance (one-sided at 5 %); without figures: so it is."""
        if part not in self.figures or not math.isfinite(self.figure(criterion, part)):
            return math.isfinite(criterion.figure(tests))
        found = self.beaten_by(tests, criterion, part)
        if not math.isfinite(found.half):
            return found.mean > 0
        return found.mean > _ONE_SIDED * found.half
