"""`Advice`: the method to use, with the finding and the results that it follows from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from florets.studies.advise.causes import Reason
from florets.studies.advise.compare import (
    FEW_RECORDS,
    TRIFLE,
    Criterion,
    Difference,
    best,
    choose,
    low_sites,
)
from florets.studies.advise.constant import ConstantAnswer
from florets.studies.advise.measures import gain
from florets.studies.advise.methods import METHODS
from florets.studies.advise.outcomes import Finding, Outcome

_LEVEL = 0.01
"""Of the tests whether a model is better than the constant answer at one client."""


@dataclass(frozen=True)
class SiteRow:
    """One site: its group, from 1, its records, and its figures by the advised method, alone and by one for all.

    `gain` is the advised method's over the alternative, with its 95 % interval by the site's own test records. NaN is
    what is not known; `note` says why the site enters no comparison.
    """

    key: str
    name: str
    group: int | None
    train: int
    test: int
    advised: float
    alone: float
    one_model: float
    gain: float
    low: float
    high: float
    note: str = ""

    @property
    def is_gain(self) -> bool:
        """Whether the advised method is better here by more than chance."""
        return self.low > 0

    @property
    def is_loss(self) -> bool:
        """Whether it is worse by more than chance."""
        return self.high < 0


@dataclass(frozen=True)
class Evidence:
    """What an advice stands on in addition to the methods' results.

    Attributes
    ----------
    one_class
        Clients whose training records are all of one class.
    names
        Of clients that have others than their keys.
    classes
        Names of the classes in the order of their labels; empty where labels are numbers.
    """

    one_class: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """The answer, with all that it stands on.

    Attributes
    ----------
    chosen
        Name of the method to use; None where none is better than the constant answer.
    low
        Clients that the chosen method serves worse than the others, by more than chance.
    own_is_low
        Of the clients that fit nobody, or that all differ, those on which every method does badly, their own model
        too.
    unfit
        Why methods enter no comparison, in words, by name.
    """

    finding: Finding
    outcomes: tuple[Outcome, ...]
    criterion: Criterion
    constant: ConstantAnswer
    chosen: str | None
    evidence: Evidence = field(default_factory=Evidence)
    low: tuple[str, ...] = ()
    own_is_low: tuple[str, ...] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)

    def outcome(self, name: str) -> Outcome | None:
        """Return a method's results; None where it was not run."""
        return next((one for one in self.outcomes if one.name == name), None)

    @property
    def best(self) -> Outcome:
        """Results of the method to use; of the best one where none is worth it."""
        chosen = None if self.chosen is None else self.outcome(self.chosen)
        return chosen or best([self.judged(one) for one in self.fit or self.outcomes], self.criterion)

    @property
    def fit(self) -> tuple[Outcome, ...]:
        """Results of the methods that enter comparisons."""
        return tuple(one for one in self.outcomes if one.name not in self.unfit)

    def judged(self, outcome: Outcome) -> Outcome:
        """Return results without those of clients whose records no model predicts: chance alone sets them apart."""
        return outcome.without(self.own_is_low)

    @property
    def few(self) -> tuple[str, ...]:
        """Clients with few test records."""
        return tuple(key for key, test in self.best.test.items() if test.n < FEW_RECORDS)

    def against(self, name: str) -> Difference | None:
        """Return the gain of the chosen method over another on the test records.

        None where that was not run, or enters no comparison.
        """
        other = self.outcome(name)
        if other is None or name in self.unfit:
            return None
        return self.criterion.difference(self.judged(self.best).test, self.judged(other).test)

    @property
    def over_common(self) -> Difference | None:
        """Gain of the chosen method over one model for all on validation and test records; None without both."""
        common = self.outcome("fedavg")
        if common is None or "fedavg" in self.unfit:
            return None
        both = [
            {f"{part} {key}": test for part in ("test", "validation") for key, test in getattr(one, part).items()}
            for one in map(self.judged, (self.best, common))
        ]
        return self.criterion.difference(*both)

    @property
    def over_constant(self) -> Difference:
        """Gain of the chosen method over the constant answer on the test records."""
        return self.constant.beaten_by(self.judged(self.best).test, self.criterion, "test")

    @property
    def runner_up(self) -> tuple[Outcome, Difference] | None:
        """The best of the other methods on the validation records, and the chosen one's gain over it there."""
        others = [self.judged(one) for one in self.fit if one.name != self.chosen]
        if not others or self.chosen is None:
            return None
        second = best(others, self.criterion)
        return second, self.criterion.difference(self.judged(self.best).validation, second.validation)

    @property
    def least_seen(self) -> float:
        """Difference that the validation records can show between the chosen method and those that seem as good.

        0 where none does, or they are all but the same.
        """
        if self.chosen is None:
            return 0.0
        mine = self.judged(self.best).validation
        others = [self.judged(one).validation for one in self.fit if one.name != self.chosen]
        gains = [self.criterion.difference(mine, other) for other in others]
        halves = [one.half for one in gains if math.isfinite(one.half) and not one.is_gain and not one.is_loss]
        least = max(halves, default=0.0)
        return least if least >= TRIFLE * abs(gain(1.0, 0.0, self.criterion.measure)) else 0.0

    def name(self, key: str) -> str:
        """Return a client's name."""
        return self.evidence.names.get(key, key)


def advise(
    finding: Finding,
    outcomes: Mapping[str, Outcome],
    criterion: Criterion,
    constant: ConstantAnswer,
    evidence: Evidence | None = None,
) -> Advice:
    """Return the advice that a finding and the methods' results lead to.

    The method is chosen on the validation records alone. What is not better there than a constant answer is not
    considered, and what turns out not to be on the test records is not advised. Of the methods that none beats by
    more than chance the simplest is taken. Where groups were found, their models and the one model for all, with and
    without intercepts, count as equally simple, and the best of them comes first: that there are groups is settled
    already. Where a test of all training records says that clients differ in coefficients, coefficients of each
    client come first, or a model per group if that is better; where the labels of sites differ, one model with
    intercepts, as in multi-centre studies: shrunk, they cost nothing where nothing needs them.
    Clients that fit nobody, and on which no method does well, their own model neither, have no say.
    """
    evidence = evidence or Evidence()
    suspects = finding.groups[0] if finding.kind == "all_differ" else finding.lone
    own_is_low = tuple(key for key in suspects if _is_unpredictable(key, outcomes, criterion, constant))
    # Without groups discovery's one model is FedAvg's.
    several = finding.kind in ("groups", "lone")
    shown = {name: outcomes[name] for name in METHODS if name in outcomes and (several or name != "discovery")}
    unfit = _unfit([one.without(own_is_low) for one in shown.values()], criterion, constant)
    advice = Advice(finding, tuple(shown.values()), criterion, constant, None, evidence, (), own_is_low, unfit)
    ordered = {name: one for name, one in shown.items() if name not in unfit}

    def better(*names: str) -> str:
        """Return the best of some methods, of the clients that have a result by each."""
        some = [ordered[name] for name in names if name in ordered]
        common = set.intersection(*(set(one.validation) for one in some)).difference(own_is_low)
        return best([one.without({*one.test, *one.validation} - common) for one in some], criterion).name

    # What comes first of all: of several the last.
    preferred = []
    if finding.kind == "groups" and {"fedavg", "discovery"} <= ordered.keys():
        preferred.append(better("fedavg", "intercept", "slopes", "discovery"))
    kinds = {reason.kind for reason in evidence.reasons}
    has_rules = finding.differs in ("coefficients", "both") and "unit" not in kinds
    if has_rules and "slopes" in ordered:
        # The test of all training records sees differences that the validation records are too few to show.
        has_groups = finding.kind == "groups" and "discovery" in ordered
        preferred.append(better("slopes", "discovery") if has_groups else "slopes")
    elif "labels" in kinds:
        # Where sites differ in how frequent the outcome is, each has a level of its own to begin with.
        preferred.append("intercept")
    compared = [one.without(own_is_low) for one in ordered.values()]
    for name in preferred:
        compared.sort(key=lambda one: one.name != name)
    useful = [one for one in compared if constant.is_beaten(one.validation, criterion, "validation")]
    if useful:
        chosen = replace(advice, chosen=choose(useful, criterion).name)
        if chosen.over_constant.mean > 0 or not math.isfinite(constant.figure(criterion)):
            advice = chosen
    return replace(advice, low=tuple(low_sites(advice.best, criterion)))


def _unfit(candidates: Sequence[Outcome], criterion: Criterion, constant: ConstantAnswer) -> dict[str, str]:
    """Return why methods enter no comparison, by name: they have not converged.

    One that was still improving is compared where it is the best nevertheless: more rounds make it better still.
    """
    reasons: dict[str, str] = {}
    for one in candidates:
        figures = [criterion.figure(tests) for tests in (one.validation, one.test) if tests]
        if any(math.isinf(figure) for figure in figures):
            reasons[one.name] = "its training diverged"
        elif any(constant.is_far_better(getattr(one, part), criterion, part) for part in ("test", "validation")):
            reasons[one.name] = "its error is more than twice that of the constant answer"
    rest = [one for one in candidates if one.name not in reasons]
    if rest:
        leading = best(rest, criterion)
        reasons |= {
            one.name: "it was still improving in its last rounds"
            for one in rest
            if one.is_improving and one is not leading
        }
    return reasons


def _is_unpredictable(
    key: str, outcomes: Mapping[str, Outcome], criterion: Criterion, constant: ConstantAnswer
) -> bool:
    """Return whether no model predicts a client's records: one for all and its own do worse there than elsewhere."""
    if not all(key in low_sites(outcomes[name], criterion) for name in ("local", "fedavg") if name in outcomes):
        return False
    if key not in constant.tests.get("test", {}):
        return all(key in low_sites(one, criterion) for one in outcomes.values() if key in one.test)
    quantile = NormalDist().inv_cdf(1 - _LEVEL / len(outcomes))
    points = abs(gain(1.0, 0.0, criterion.measure))
    for one in outcomes.values():
        total = means = squares = 0.0
        for part, tests in (("test", one.test), ("validation", one.validation)):
            answer, test = constant.tests[part].get(key), tests.get(key)  # type: ignore[index]
            if test is None or answer is None:
                continue
            replicates = test.replicates.get(criterion.measure)
            error = math.inf if replicates is None else points * float(np.nanstd(replicates.astype(np.float64)))
            total += test.n
            means += test.n * gain(criterion.own(test), criterion.own(answer), criterion.measure)
            squares += (test.n * error) ** 2
        if total and means > quantile * math.sqrt(squares):
            return False
    return True
