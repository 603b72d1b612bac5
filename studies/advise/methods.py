"""The methods that advice compares, and the runs that they take."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from florets.conf.compose import compose
from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.reports.console import counted
from florets.strategies.base.federation import FederationError
from florets.studies.advise.compare import Criterion
from florets.studies.advise.measures import FORMS, OF_CLASSES, OF_VALUES, Name, for_stopping, is_better, value
from florets.studies.advise.outcomes import Finding, Outcome, read_outcome

VALIDATION = 0.2
"""Of each client's training records, unless `task.validation_fraction` says otherwise."""
ROUNDS, EVERY, PATIENCE = 40, 2, 3
"""Rounds of a run at most, rounds between evaluations, and evaluations without progress after which it stops, unless
the keys say otherwise."""
STEPS = (1 / 3, 1.0, 3.0)
"""Learning rates that are tried, in units of the experiment's."""
_LOOK = 4
"""Rounds of the first run: replies may be lost, and are then waited for."""
_LATEST_LOOK = 41
"""The same where groups are only looked for once a model has learned what all clients share."""
_SLOWER = (1 / 3, 0.1, 1e-2, 1e-3, 1e-5)
"""Factors of the learning rate that are tried where the first run diverges."""
_SMALLER, _LARGER = (10.0, 1e3, 1e5), (3.0, 10.0)
"""Factors of the learning rates that are tried where nothing useful was learned: inputs may be of any size."""
_TIMES = 3
"""Factor of the rounds where nothing useful was learned."""

TITLES = {
    "fedavg": "One model for all (FedAvg)",
    "standardised": "One model for all, inputs standardised per site (FedAvg)",
    "intercept": "One model with an intercept per site (FedAvg)",
    "discovery": "One model per group (discovery)",
    "group_intercept": "One model per group, an intercept per site (discovery)",
    "tuned": "One model for all, fine-tuned by each (FedAvg)",
    "two_groups": "Two groups regardless (discovery, k=2)",
    "clove": "One model per group (CLoVE)",
    "local": "Each alone (Local-only)",
}
"""The methods, the simplest first: what clients share costs nobody more than what they do alone."""
OPTIONAL = ("intercept", "group_intercept")
"""Methods that not every model suits."""
CONSTANT_TITLES = {True: "Constant answer (mean)", False: "Constant answer (most frequent class)"}
"""By whether the targets are values."""

NAMES = {
    "fedavg": "FedAvg",
    "standardised": "FedAvg on inputs standardised per {site}",
    "intercept": "FedAvg with an intercept per {site}",
    "discovery": "one model per group",
    "group_intercept": "one model per group with an intercept per {site}",
    "tuned": "FedAvg with fine-tuning",
    "two_groups": "two groups regardless",
    "clove": "CLoVE",
    "local": "each {site} alone",
}
"""Names of the methods within a sentence."""

SHORT_NAMES = {
    "fedavg": "one for all",
    "standardised": "standardised",
    "intercept": "intercepts",
    "discovery": "groups",
    "group_intercept": "groups, intercepts",
    "tuned": "fine-tuned",
    "two_groups": "two groups",
    "clove": "CLoVE",
    "local": "alone",
}
"""Heads of columns."""

COMMANDS = {
    "fedavg": "strategy=fedavg",
    "standardised": "strategy=fedavg {standardise}",
    "intercept": "strategy=fedavg personal=intercept",
    "discovery": "strategy=discovery k=auto",
    "group_intercept": "strategy=discovery k=auto personal=intercept",
    "tuned": "strategy=fedavg fine_tune_epochs={epochs:g}",
    "two_groups": "strategy=discovery k=2",
    "clove": "strategy=clove k={k}",
    "local": "strategy=local",
}
"""The keys of a method."""

_PER_SITE = ("task.table.standardise=site",)
_OURS = ("strategy", "k", "k_max", "stop_at_ari", "stop_at_groups", "statistics", "personal")
_HOW = ("quiet", "results_dir", "pictures", "checkpoint_every", "loss_matrix", "measure", "patience")
"""Keys that say nothing of what is used."""
_MAY_STAY = ("strategy.fraction_train",)
_REGRESSIONS = ("squared_error", "half_squared_error")


@dataclass(frozen=True)
class Question:
    """What is asked: an experiment, without a strategy.

    Attributes
    ----------
    base
        The experiment with FedAvg, which says everything that all runs share.
    slower
        Factor of the experiment's learning rate, below 1 where training diverges with it.
    """

    overrides: tuple[str, ...]
    base: Config
    measure: str = "auto"
    slower: float = 1.0

    @classmethod
    def of(cls, overrides: Sequence[str]) -> "Question":
        """Read what was typed."""
        problems: list[str] = []
        measure = "auto"
        for entry in read_overrides(overrides, problems):
            if entry.key == "measure":
                measure = str(entry.value)
                if measure not in ("auto", *OF_CLASSES, *OF_VALUES):
                    known = ", ".join((*OF_CLASSES, *OF_VALUES))
                    problems.append(f"{entry.text}: there is no such measure; use auto, {known}.")
            if entry.key in _OURS or (entry.key.startswith("strategy.") and entry.key not in _MAY_STAY):
                problems.append(f"{entry.text}: `florets advise` compares strategies itself; leave it out.")
        if problems:
            raise ConfigError(problems)
        # Which measures fit shows once the sites have described their targets.
        plain = [text for text in overrides if text.partition("=")[0] != "measure"]
        held_out = any(text.startswith("task.validation_fraction=") for text in plain)
        base = compose([*plain, "strategy=fedavg", *([] if held_out else [f"task.validation_fraction={VALIDATION}"])])
        return cls(tuple(overrides), base, measure)

    def gives(self, key: str) -> bool:
        """Return whether a key was typed."""
        return any(text.partition("=")[0] == key for text in self.overrides)

    @property
    def is_own(self) -> bool:
        """Whether clients are nodes with data of their own."""
        return self.base.task.partition == "own"

    @property
    def fine_tune_epochs(self) -> float:
        """Local epochs of fine-tuning: those of one round, unless it is said."""
        return self.base.fine_tune_epochs or (1.0 if self.base.train.local_steps else self.base.train.local_epochs)

    @property
    def validation(self) -> float:
        """Fraction of the training records that the choice is made on."""
        return self.base.task.validation_fraction

    @property
    def standardise_keys(self) -> tuple[str, ...]:
        """Keys with which each client standardises its inputs by itself; none where that is not possible."""
        task = self.base.task
        return _PER_SITE if task.data == "own" and task.table.standardise != "site" else ()

    @property
    def rounds(self) -> int:
        """Rounds of a run at most."""
        return self.base.num_rounds if self.gives("num_rounds") else max(self.base.num_rounds, ROUNDS)

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried: three, unless one was typed."""
        rate = self.base.train.learning_rate * self.slower
        return (rate,) if self.gives("train.learning_rate") else tuple(float(f"{rate * step:.3g}") for step in STEPS)

    def config(self, *own: str) -> Config:
        """Return the experiment with a strategy, and tests of validation records with sums of them."""
        given = {text.partition("=")[0] for text in self.overrides}
        shared = {
            "task.validation_fraction": self.validation,
            "loss_matrix": "false",
            # A trial is not resumed, and one that failed must not keep others from its folder.
            "checkpoint_every": 0,
            "statistics": "false" if self.base.task.loss == "reconstruction" else "true",
            "num_rounds": self.rounds,
        }
        keys = ["measure", *(text.partition("=")[0] for text in own)]
        ours = [f"{key}={value}" for key, value in shared.items() if key not in (*given, *keys)]
        typed = [text for text in self.overrides if text.partition("=")[0] not in keys]
        return compose([*typed, *ours, *own])


@dataclass(frozen=True)
class Setup:
    """What all methods that are compared share.

    Attributes
    ----------
    measure
        By which rounds, rates and the method are chosen.
    rates
        Learning rates that each method is tried with.
    """

    measure: Name
    rates: tuple[float, ...]
    keys: tuple[str, ...] = ()

    @property
    def standardises(self) -> bool:
        """Whether each client standardises its inputs by itself."""
        return any(key in self.keys for key in _PER_SITE)


def setup_of(question: Question, measure: Name, is_rare: bool) -> Setup:
    """Return the first setup: stopping by patience, and class weights where a class is rare."""
    keys = [f"measure={for_stopping(measure)}"]
    if not question.gives("patience"):
        keys.append(f"patience={PATIENCE}")
    if is_rare and not question.gives("train.class_weights"):
        keys.append("train.class_weights=balanced")
    return Setup(measure, question.rates, tuple(keys))


def remedies(question: Question, setup: Setup, standardise: Sequence[str]) -> list[tuple[str, Setup]]:
    """Return what is tried where no method is better than a constant answer: in words, and as a setup.

    Parameters
    ----------
    standardise
        Keys with which each site standardises its own inputs; none where that is not possible.
    """
    found = []
    keys = {key.partition("=")[0] for key in setup.keys}
    if standardise:
        found.append(("each site standardises its own inputs", replace(setup, keys=(*setup.keys, *standardise))))
    is_classes = question.base.task.loss == "cross_entropy"
    if is_classes and "train.class_weights" not in keys and not question.gives("train.class_weights"):
        found.append(("class weights", replace(setup, keys=(*setup.keys, "train.class_weights=balanced"))))
    if not question.gives("train.learning_rate"):
        least, most = min(setup.rates), max(setup.rates)
        for words, rates in (
            ("smaller learning rates", [least / factor for factor in _SMALLER]),
            ("larger learning rates", [most * factor for factor in _LARGER]),
        ):
            found.append((words, replace(setup, rates=tuple(float(f"{rate:.3g}") for rate in rates))))
    if not question.gives("num_rounds"):
        patience = f"patience={3 * PATIENCE}"
        kept = [key for key in setup.keys if not key.startswith("patience=")]
        found.append(
            ("more rounds", replace(setup, keys=(*kept, f"num_rounds={_TIMES * question.rounds}", patience)))
        )
    return found


def as_regression(question: Question) -> Question:
    """Return the question for tables whose target turned out to be a value, with a regression's loss."""
    keys = ("task.loss", "task.table.regression")
    overrides = [text for text in question.overrides if text.partition("=")[0] not in keys]
    return Question.of([*overrides, "task.loss=squared_error", "task.table.regression=true"])


def slower(question: Question) -> list[Question]:
    """Return the question with smaller learning rates, for training that diverges; none where a rate was typed."""
    if question.gives("train.learning_rate"):
        return []
    return [replace(question, slower=factor) for factor in _SLOWER]


def first_run(question: Question, *keys: str) -> Config:
    """Return the run that looks for groups: a few rounds, or as many as it takes to have seen what it needs.

    Sites with records of one class say nothing of a rule that tells classes apart: they are placed afterwards.
    """
    if question.slower != 1:
        keys = (f"train.learning_rate={question.base.train.learning_rate * question.slower:.3g}", *keys)
    at_once = question.base.task.loss not in _REGRESSIONS and question.base.strategy.settings.fraction_train == 1
    rounds = _LOOK if at_once else max(question.rounds, _LATEST_LOOK)
    return question.config(*_look(question), f"num_rounds={rounds}", f"eval_every={rounds}", *keys)


def _look(question: Question) -> tuple[str, ...]:
    """Return the keys of a search for groups; in simulations classes may well be what makes the groups."""
    return ("strategy=discovery", "k=auto", *(["strategy.place_one_class=true"] if question.is_own else []))


def candidates(question: Question, finding: Finding) -> dict[str, tuple[str, ...]]:
    """Return the keys of each method that is run, by name, in the order in which they are run.

    Fine-tuned copies are tested in the runs of FedAvg.
    """
    found: dict[str, tuple[str, ...]] = {
        "fedavg": ("strategy=fedavg", f"fine_tune_epochs={question.fine_tune_epochs}"),
        "intercept": ("strategy=fedavg", "personal=intercept"),
        "local": ("strategy=local",),
    }
    if finding.kind in ("groups", "lone"):
        look = (*_look(question), "loss_matrix=true")
        found["discovery"] = look
        if finding.kind == "groups":
            found["group_intercept"] = (*look, "personal=intercept")
    else:
        found["two_groups"] = ("strategy=discovery", "k=2")
    found["clove"] = ("strategy=clove", f"k={num_groups(finding)}")
    if question.base.task.loss == "reconstruction":
        del found["intercept"]
    return found


def candidate_run(question: Question, setup: Setup, keys: Sequence[str], rate: float) -> Config:
    """Return one run of a method, with one learning rate."""
    every = [] if question.gives("eval_every") else [f"eval_every={EVERY}"]
    return question.config(f"train.learning_rate={rate:g}", *every, "pictures=false", *setup.keys, *keys)


def num_groups(finding: Finding) -> int:
    """Return the number of models of a method that needs one."""
    return max(2, len(finding.groups)) if finding.kind in ("groups", "lone") else 2


def command(question: Question, method: str, finding: Finding, setup: Setup, rate: float, rounds: int) -> str:
    """Return the command that uses a method, with the settings that were chosen."""
    keys = COMMANDS[method].format(
        epochs=question.fine_tune_epochs, k=num_groups(finding), standardise=" ".join(_PER_SITE)
    )
    shown = [text for text in question.overrides if text.partition("=")[0] not in _HOW]
    chosen = [] if question.gives("train.learning_rate") else [f"train.learning_rate={rate:g}"]
    chosen += [key for key in setup.keys if key.startswith(("train.", "task."))]
    if not question.gives("num_rounds"):
        chosen.append(f"num_rounds={rounds}")
    return " ".join(["florets", *map(shlex.quote, shown), keys, *chosen])


_AFTER_DIVERGENCE = (0.1, 0.01)
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
            smaller = [] if len(rates) == 1 else [rates[middle] * factor for factor in _AFTER_DIVERGENCE]
            _climb(method, [*rates[:middle][::-1], *smaller], first, criterion, attempt)
        # Figures have one peak over the rates: a better one above the middle spares those below it.
        elif not _climb(method, rates[middle + 1 :], first, criterion, attempt):
            _climb(method, rates[:middle][::-1], first, criterion, attempt)
    return found, trials


def _climb(
    method: str, rates: Sequence[float], figure: float, criterion: Criterion, attempt: Callable[[str, float], float]
) -> bool:
    """Try rates one after the other as long as each is better than the one before; say whether the first one was."""
    for number, rate in enumerate(rates):
        found = attempt(method, rate)
        if math.isfinite(figure) and not is_better(found, figure, criterion.measure):
            return number > 0
        figure = found
    return bool(rates)


def rates_criterion(criterion: Criterion) -> Criterion:
    """Return what learning rates are chosen by: the log loss says more of few validation records than an accuracy."""
    return replace(criterion, measure="log_loss") if criterion.measure == "accuracy" else criterion
