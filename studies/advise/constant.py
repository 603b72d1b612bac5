"""The constant answer, which ignores its input: the reference that every method has to beat."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from florets.reports.pooled import PartStatistics, TestStatistics, constant
from florets.reports.scores import Part
from florets.studies.advise.compare import QUANTILE, Criterion, Difference
from florets.studies.advise.measures import FORMS, Name
from florets.studies.advise.outcomes import Tests

_FAR = 2.0
"""Times the constant answer's error from which a method's results say that it was not trained, and no more."""
_ONE_SIDED = 1.644854 / QUANTILE
"""From the half width of a 95 % interval to a one-sided bound at 95 %."""


class _Fixed(PartStatistics):
    """A client's test of the constant answer: its figure is the same in every resample."""

    @property
    def replicates(self) -> dict[str, npt.NDArray[np.float32]]:
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
        known = [self._figure(criterion, one) for one in (part, "test", "validation")]
        return next((one for one in known if math.isfinite(one)), math.nan)

    def _figure(self, criterion: Criterion, part: Part) -> float:
        if self.measure == "r2":
            return self.pooled.get(part, math.nan)
        return criterion.figure(self.tests.get(part, {}))

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
        if math.isnan(constant) or math.isnan(figure):
            return False
        if criterion.measure == "r2":
            return 1 - figure > _FAR * (1 - constant)
        return not FORMS[criterion.measure].higher and figure > _FAR * constant
