"""The search: every method with every learning rate, of which the best on the validation records is taken."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from florets.conf.schema import Config
from florets.server_app.advise.compare import Criterion
from florets.server_app.advise.measures import is_better, value
from florets.server_app.advise.methods import Question, Setup, candidate_run
from florets.server_app.advise.outcomes import Outcome, read_outcome

Run = Callable[[str, Config, Callable[[Path], str]], Path]
"""Runs an experiment under a name; the last argument says in a few words what came of it."""


@dataclass(frozen=True)
class Trial:
    """One learning rate of one method: its figure on the validation records, and the rounds that it took."""

    method: str
    rate: float
    rounds: int
    figure: float


def search(
    question: Question,
    setup: Setup,
    methods: Mapping[str, Sequence[str]],
    criterion: Criterion,
    run: Run,
    prefix: str = "",
) -> tuple[dict[str, Outcome], list[Trial]]:
    """Run every method with every learning rate; return the best outcome of each, and all trials.

    Parameters
    ----------
    methods
        Keys of each, by name. Fine-tuned copies are tested in the runs of FedAvg, at the rate that suits them best.
    criterion
        Decides on the rates: for accuracies by the log loss, which says more of few validation records.
    run
        Makes one run.
    prefix
        Of the runs' names.
    """
    found: dict[str, Outcome] = {}
    trials: list[Trial] = []
    for method, keys in methods.items():
        for rate in setup.rates:

            def said(place: Path, method: str = method, rate: float = rate) -> str:
                one = read_outcome(method, place, rate)
                figure = criterion.figure(one.validation)
                return f"{one.rounds} rounds, validation {criterion.measure} {value(figure, criterion.measure)}"

            name = f"{prefix}{method}" + (f"-rate-{rate:g}" if len(setup.rates) > 1 else "")
            place = run(name, candidate_run(question, setup, keys, rate), said)
            outcomes = [read_outcome(method, place, rate)]
            if method == "fedavg":
                outcomes.append(read_outcome("tuned", place, rate, tuned=True))
            for one in outcomes:
                figure = criterion.figure(one.validation)
                trials.append(Trial(one.name, rate, one.rounds, figure))
                best = found.get(one.name)
                if best is None or is_better(figure, criterion.figure(best.validation), criterion.measure):
                    found[one.name] = one
    return found, trials


def rates_criterion(criterion: Criterion) -> Criterion:
    """Return what learning rates are chosen by: the log loss says more of few validation records than an accuracy."""
    return replace(criterion, measure="log_loss") if criterion.measure == "accuracy" else criterion
