"""`Advice`: the method to use, with the finding and the results that it follows from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from florets.studies.advise.causes import Reason
from florets.studies.advise.compare import FEW_RECORDS, ConstantAnswer, Criterion, Difference, best, choose
from florets.studies.advise.methods import METHODS
from florets.studies.advise.outcomes import Finding, Outcome


@dataclass(frozen=True)
class Evidence:
    """What an advice stands on in addition to the methods' results.

    `one_class`: clients whose training records are all of one class. `names`: of clients that have others than their
    keys. `classes`: names of the classes in the order of their labels; empty where labels are numbers. `left_out`:
    nodes that could not take part.
    """

    one_class: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    classes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """The answer, with all that it stands on.

    `chosen`: name of the method to use; None where none is better than the constant answer. `diverged`: methods that
    enter no comparison.
    """

    finding: Finding
    outcomes: tuple[Outcome, ...]
    criterion: Criterion
    constant: ConstantAnswer
    chosen: str | None
    evidence: Evidence = field(default_factory=Evidence)
    diverged: tuple[str, ...] = ()

    def outcome(self, name: str) -> Outcome | None:
        """Return a method's results; None where it was not run."""
        return next((one for one in self.outcomes if one.name == name), None)

    @property
    def best(self) -> Outcome:
        """Results of the method to use; of the best one where none is worth it."""
        chosen = None if self.chosen is None else self.outcome(self.chosen)
        return chosen or best(self.fit or self.outcomes, self.criterion)

    @property
    def fit(self) -> tuple[Outcome, ...]:
        """Results of the methods that enter comparisons."""
        return tuple(one for one in self.outcomes if one.name not in self.diverged)

    @property
    def few(self) -> tuple[str, ...]:
        """Clients with few test records."""
        return tuple(key for key, test in self.best.test.items() if test.n < FEW_RECORDS)

    def against(self, name: str) -> Difference | None:
        """Return the gain of the chosen method over another on the test records.

        None where that was not run, or enters no comparison.
        """
        other = self.outcome(name)
        if other is None or name in self.diverged:
            return None
        return self.criterion.difference(self.best.test, other.test)

    @property
    def over_constant(self) -> Difference:
        """Gain of the chosen method over the constant answer on the test records."""
        return self.constant.beaten_by(self.best.test, self.criterion, "test")

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
    """
    evidence = evidence or Evidence()
    # Without groups discovery's one model is FedAvg's.
    several = finding.kind in ("groups", "lone")
    shown = {name: outcomes[name] for name in METHODS if name in outcomes and (several or name != "discovery")}
    diverged = tuple(name for name, one in shown.items() if _has_diverged(one, criterion, constant))
    advice = Advice(finding, tuple(shown.values()), criterion, constant, None, evidence, diverged)
    ordered = {name: one for name, one in shown.items() if name not in diverged}

    def better(*names: str) -> str:
        """Return the best of some methods, of the clients that have a result by each."""
        some = [ordered[name] for name in names if name in ordered]
        common = set.intersection(*(set(one.validation) for one in some))
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
    compared = list(ordered.values())
    for name in preferred:
        compared.sort(key=lambda one: one.name != name)
    useful = [one for one in compared if constant.is_beaten(one.validation, criterion, "validation")]
    if not useful:
        return advice
    chosen = replace(advice, chosen=choose(useful, criterion).name)
    is_useful = chosen.over_constant.mean > 0 or not math.isfinite(constant.figure(criterion))
    return chosen if is_useful else advice


def _has_diverged(outcome: Outcome, criterion: Criterion, constant: ConstantAnswer) -> bool:
    """Return whether a method's error is infinite, or so large that it was not trained."""
    figures = [criterion.figure(tests) for tests in (outcome.validation, outcome.test) if tests]
    return any(map(math.isinf, figures)) or any(
        constant.is_far_better(getattr(outcome, part), criterion, part) for part in ("test", "validation")
    )
