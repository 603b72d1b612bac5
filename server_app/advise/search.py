"""The search: every method with every learning rate, of which the best on the validation records is taken."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.reports.console import counted
from florets.server_app.advise.compare import Criterion
from florets.server_app.advise.measures import FORMS, is_better, value
from florets.server_app.advise.methods import OPTIONAL, Question, Setup, candidate_run
from florets.server_app.advise.outcomes import Outcome, read_outcome
from florets.strategies.base.federation import FederationError

_SMALLER = (0.1, 0.01)
"""Factors of the learning rates that are tried in addition where training diverged."""

Run = Callable[[str, Config, Callable[[Path], str]], Path]
"""Runs an experiment under a name; the last argument says in a few words what came of it."""


@dataclass(frozen=True)
class Trial:
    """One learning rate of one method: its figure on the validation records, and the rounds that it took.

    `failure` says why the run came to no end, as when every client's model diverged; the figure is then NaN.
    """

    method: str
    rate: float
    rounds: int
    figure: float
    failure: str = ""


def search(
    question: Question,
    setup: Setup,
    methods: Mapping[str, Sequence[str]],
    criterion: Criterion,
    run: Run,
    prefix: str = "",
    every_rate: bool = False,
) -> tuple[dict[str, Outcome], list[Trial]]:
    """Run every method with every learning rate; return the best outcome of each, and all trials.

    Parameters
    ----------
    methods
        Keys of each, by name; those of `methods.OPTIONAL` are left out where the model does not suit them.
        Fine-tuned copies are tested in the runs of FedAvg, at the rate that suits them best.
    criterion
        Decides on the rates: for accuracies by the log loss, which says more of few validation records.
    run
        Makes one run.
    prefix
        Of the runs' names.
    every_rate
        Try all rates, whatever the others brought: where nothing is learned figures say nothing of the next rate.
    """
    found: dict[str, Outcome] = {}
    trials: list[Trial] = []

    def attempt(method: str, rate: float) -> float:
        """Run a method with a rate, keep what is best so far, and return the validation figure."""

        def said(place: Path) -> str:
            one = read_outcome(method, place, rate)
            figure = value(criterion.figure(one.validation), criterion.measure)
            return f"{counted(one.rounds, 'round')}, validation {FORMS[criterion.measure].title} {figure}"

        name = f"{prefix}{method}" + (f"-rate-{rate:g}" if len(setup.rates) > 1 else "")
        try:
            place = run(name, candidate_run(question, setup, methods[method], rate), said)
        except FederationError as error:
            trials.append(Trial(method, rate, 0, math.nan, str(error)))
            return math.nan
        outcomes = [read_outcome(method, place, rate)]
        if method == "fedavg":
            outcomes.append(read_outcome("tuned", place, rate, tuned=True))
        for one in outcomes:
            figure, best = criterion.figure(one.validation), found.get(one.name)
            trials.append(Trial(one.name, rate, one.rounds, figure))
            if best is None or is_better(figure, criterion.figure(best.validation), criterion.measure):
                found[one.name] = one
        return trials[-len(outcomes)].figure

    for method in methods:
        rates = sorted(setup.rates)
        middle = len(rates) // 2
        try:
            first = attempt(method, rates[middle])
        except ConfigError:
            if method not in OPTIONAL:
                raise
            continue
        if every_rate:
            for rate in rates:
                if rate != rates[middle]:
                    attempt(method, rate)
            continue
        if not math.isfinite(first):
            # Larger rates would diverge as well.
            smaller = [] if len(rates) == 1 else [rates[middle] * factor for factor in _SMALLER]
            _climb(method, [*rates[:middle][::-1], *smaller], first, criterion, attempt)
        # Figures have one peak over the rates: a better one above the middle spares those below it.
        elif not _climb(method, rates[middle + 1 :], first, criterion, attempt):
            _climb(method, rates[:middle][::-1], first, criterion, attempt)
    return found, trials


def _climb(
    method: str, rates: Sequence[float], figure: float, criterion: Criterion, attempt: Callable[[str, float], float]
) -> bool:
    """Try rates one after the other as long as each is better than the one before; say whether the first one was.

    Where the one before has no finite figure the next is tried in any case.
    """
    for number, rate in enumerate(rates):
        found = attempt(method, rate)
        if math.isfinite(figure) and not is_better(found, figure, criterion.measure):
            return number > 0
        figure = found
    return bool(rates)


def rates_criterion(criterion: Criterion) -> Criterion:
    """Return what learning rates are chosen by: the log loss says more of few validation records than an accuracy."""
    return replace(criterion, measure="log_loss") if criterion.measure == "accuracy" else criterion
