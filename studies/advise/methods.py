"""The methods that advice compares, and the runs that they take."""

import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.reports.console import counted, say
from florets.strategies.base.federation import FederationError
from florets.studies.advise.compare import Criterion
from florets.studies.advise.measures import Name, gain, named, unit_of, worth
from florets.studies.advise.outcomes import Finding, Outcome, read_outcome
from florets.studies.one_run import refuse_decided
from florets.task.settings import scales_targets

VALIDATION = 0.2
"""Of each client's training records, unless `task.validation_fraction` says otherwise."""
ROUNDS, EVERY, PATIENCE = 40, 2, 3
"""Rounds of a run at most, rounds between evaluations, and evaluations without progress after which it stops, unless
the keys say otherwise."""
STEPS = (1.0, 3.0, 1 / 3)
"""Learning rates that are tried, in units of the experiment's."""
RATE, RIDGE = "train.learning_rate", "train.ridge"
RIDGES = (1.0, 10.0, 100.0, 0.1)
"""Ridges that are tried where linear models train by Newton's steps, which have no learning rate."""
_NEWTON, _NEWTON_OF_VALUES = 8, 3
"""Rounds in which Newton's steps, one in each, end at the minimum, also for an outcome of 1 in 100; for values in the
first."""
_NEWTON_OF_GROUPS = 16
"""Rounds until groups are found, once one model fits all, and theirs fit."""
_EXACT = ("fedavg", "intercept", "slopes", "local")
_LEAST = 1e-3
"""Gain in R2 or log loss, on validation records, for which another ridge is worth a further run."""
_LOOK = 4
"""Rounds of the first run: replies may be lost, and are then waited for."""
_LATEST_LOOK = 41
"""The same where groups are only looked for once a model has learned what all clients share."""


class Method(NamedTuple):
    """A method's name within a sentence, and the keys that use it."""

    text: str
    keys: str


METHODS = {
    "fedavg": Method("one model for all (FedAvg)", "strategy=fedavg"),
    "intercept": Method(
        "one model with an intercept per {site} (FedAvg, personal=intercept)", "strategy=fedavg personal=intercept"
    ),
    "slopes": Method(
        "one model with coefficients of each {site}, shrunk towards the common ones (FedAvg, personal=slopes)",
        "strategy=fedavg personal=slopes",
    ),
    "discovery": Method("one model per group (strategy=discovery)", "strategy=discovery k=auto"),
    "tuned": Method(
        "one model for all, fine-tuned by each {site} (FedAvg)", "strategy=fedavg fine_tune_epochs={epochs:g}"
    ),
    "local": Method("each {site} alone, without federation (strategy=local)", "strategy=local"),
}
"""The methods, the simplest first: what clients share costs nobody more than what they do alone."""

_OURS = ("strategy", "k", "k_max", "stop_at_groups", "statistics", "personal", "measure")
_HOW = ("quiet", "results_dir", "pictures", "checkpoint_every", "loss_matrix", "patience")
"""Keys that say nothing of what is used."""
_MAY_STAY = ("strategy.fraction_train",)
_REGRESSIONS = ("squared_error", "half_squared_error")


def note(text: str) -> None:
    """Show a line of progress."""
    say(f"advise: {text}", sys.stderr)


def _is_decided(key: str) -> bool:
    return key in _OURS or (key.startswith("strategy.") and key not in _MAY_STAY)


def _key(text: str) -> str:
    return text.partition("=")[0]


@dataclass(frozen=True)
class Question:
    """What is asked: an experiment, without a strategy.

    `base`: the experiment with FedAvg, which says everything that all runs share. `by_newton`: models are linear, and
    train by Newton's steps. `measure`: what methods are compared by, once the data are known.
    """

    overrides: tuple[str, ...]
    base: Config
    by_newton: bool = False
    measure: Name = "loss"

    @classmethod
    def of(cls, overrides: Sequence[str]) -> "Question":
        """Read what was typed."""
        refuse_decided(overrides, "advise", _is_decided)
        held_out = any(_key(text) == "task.validation_fraction" for text in overrides)
        held = [] if held_out else [f"task.validation_fraction={VALIDATION}"]
        base = compose([*overrides, "strategy=fedavg", *held])
        if base.privacy.has_noise:
            raise ConfigError(
                f"privacy.kind={base.privacy.kind}: `florets advise` decides by tests without noise in many runs, "
                "each of which would spend epsilon; leave it out, and ask on data that need none."
            )
        return cls(tuple(overrides), base, by_newton=base.train.solver == "newton")

    def gives(self, key: str) -> bool:
        """Return whether a key was typed."""
        return any(_key(text) == key for text in self.overrides)

    def unless_given(self, *texts: str) -> tuple[str, ...]:
        """Return the `key=value` texts whose keys were not typed."""
        return tuple(text for text in texts if not self.gives(_key(text)))

    @property
    def is_own(self) -> bool:
        """Whether clients are nodes with data of their own."""
        return self.base.task.partition == "own"

    @property
    def has_coefficients(self) -> bool:
        """Whether outputs are logits or values, of which tests have sums and each client may have its own level."""
        return self.base.task.loss == "cross_entropy" or scales_targets(self.base.task.loss)

    @property
    def fine_tune_epochs(self) -> float:
        """Local epochs of fine-tuning: those of one round, unless it is said."""
        return self.base.fine_tune_epochs or (1.0 if self.base.train.local_steps else self.base.train.local_epochs)

    @property
    def rounds(self) -> int:
        """Rounds of a run at most."""
        if self.gives("num_rounds"):
            return self.base.num_rounds
        return _NEWTON if self.by_newton else max(self.base.num_rounds, ROUNDS)

    @property
    def tuned_key(self) -> str:
        """The key whose values are tried."""
        return RIDGE if self.by_newton else RATE

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried, or ridges: several, unless one was typed."""
        if self.by_newton:
            return (self.base.train.ridge,) if self.gives(RIDGE) else RIDGES
        rate = self.base.train.learning_rate
        return (rate,) if self.gives(RATE) else tuple(float(f"{rate * step:.3g}") for step in STEPS)

    @property
    def shared(self) -> tuple[str, ...]:
        """Keys of every run of a method: networks are stopped by patience."""
        # Newton's steps end at the minimum, where one test is enough.
        stop = "train.local_epochs=1" if self.by_newton else f"patience={PATIENCE}"
        # R2 follows the squared error, which each client's loss is, however few validation records it has.
        measure = "log_loss" if self.measure == "log_loss" else "auto"
        return (f"measure={measure}", *self.unless_given(stop))

    def config(self, *own: str) -> Config:
        """Return the experiment with a strategy, and tests of validation records with sums of them."""
        decided = set(map(_key, own))
        shared = self.unless_given(
            f"task.validation_fraction={self.base.task.validation_fraction}",
            "loss_matrix=false",
            # A trial is not resumed, and one that failed must not keep others from its folder.
            "checkpoint_every=0",
            f"statistics={'true' if self.has_coefficients else 'false'}",
            f"num_rounds={self.rounds}",
        )
        return compose([*(text for text in (*self.overrides, *shared) if _key(text) not in decided), *own])


def as_regression(question: Question) -> Question:
    """Return the question for tables whose target turned out to be a value, with a regression's loss."""
    keys = ("task.loss", "task.table.regression")
    overrides = [text for text in question.overrides if _key(text) not in keys]
    return Question.of([*overrides, "task.loss=squared_error", "task.table.regression=true"])


def first_run(question: Question, *keys: str) -> Config:
    """Return the run that looks for groups: a few rounds, or as many as it takes to have seen what it needs."""
    at_once = question.base.task.loss not in _REGRESSIONS and question.base.strategy.settings.fraction_train == 1
    least = _NEWTON_OF_GROUPS if question.by_newton else _LATEST_LOOK
    rounds = _LOOK if at_once and not question.by_newton else max(question.rounds, least)
    if question.by_newton:
        # So that it is the run of one model per group as well.
        keys = (*question.unless_given("train.local_epochs=1"), "loss_matrix=true", *keys)
    return question.config(*_look(question), f"num_rounds={rounds}", f"eval_every={rounds}", *keys)


def _look(question: Question) -> tuple[str, ...]:
    """Return the keys of a search for groups.

    Sites with records of one class say nothing of a rule that tells classes apart: they are placed afterwards. In
    simulations classes may well be what makes the groups.
    """
    return ("strategy=discovery", "k=auto", *(["strategy.place_one_class=true"] if question.is_own else []))


def candidates(question: Question, finding: Finding) -> dict[str, tuple[str, ...]]:
    """Return the keys of each method that is run, by name, in the order in which they are run.

    Fine-tuned copies are tested in the runs of FedAvg; of linear models intercepts and coefficients of each client
    take their place.
    """
    tuned = () if question.by_newton else (f"fine_tune_epochs={question.fine_tune_epochs}",)
    runs: dict[str, tuple[str, ...]] = {"fedavg": ("strategy=fedavg", *tuned)}
    if question.by_newton and question.has_coefficients:
        runs["intercept"] = ("strategy=fedavg", "personal=intercept")
        runs["slopes"] = ("strategy=fedavg", "personal=slopes")
    runs["local"] = ("strategy=local", *_alone(question))
    if finding.kind in ("groups", "lone"):
        runs["discovery"] = (*_look(question), "loss_matrix=true")
    return runs


def _alone(question: Question) -> tuple[str, ...]:
    """Return the keys with which clients that train alone do so in one round: more messages change nothing."""
    typed = question.gives("num_rounds") or question.gives("train.local_epochs")
    return (f"train.local_epochs={_NEWTON}",) if question.by_newton and not typed else ()


def rounds_of(question: Question, method: str) -> int:
    """Return the most rounds of a method's run."""
    if not question.by_newton or question.gives("num_rounds"):
        return question.rounds
    if method == "local" and _alone(question):
        return 1
    if method not in _EXACT:
        return _NEWTON_OF_GROUPS
    return _NEWTON_OF_VALUES if question.base.task.loss in _REGRESSIONS else question.rounds


def candidate_run(question: Question, method: str, keys: Sequence[str], rate: float) -> Config:
    """Return one run of a method, with one learning rate or ridge."""
    rounds = rounds_of(question, method)
    every = question.unless_given(f"num_rounds={rounds}", f"eval_every={rounds if question.by_newton else EVERY}")
    own = {_key(text) for text in keys}
    shared = [text for text in question.shared if _key(text) not in own]
    return question.config(f"{question.tuned_key}={rate:g}", *every, "pictures=false", *shared, *keys)


def command(question: Question, method: str, rate: float, rounds: int) -> str:
    """Return the command that uses a method, with the settings that were chosen."""
    method_keys = METHODS[method].keys.format(epochs=question.fine_tune_epochs).split()
    if method == "local":
        method_keys += _alone(question)
    shown = [shlex.quote(text) for text in question.overrides if _key(text) not in _HOW]
    own = {_key(text) for text in method_keys}
    kept = [key for key in question.shared if key.startswith("train.") and _key(key) not in own]
    # The run then ends with the figure over all records, by which methods were compared.
    at_the_end = ["statistics=true"] if question.has_coefficients else []
    chosen = question.unless_given(f"{question.tuned_key}={rate:g}")
    rest = question.unless_given(f"num_rounds={rounds}", *at_the_end)
    return " ".join(["florets", *shown, *method_keys, *chosen, *kept, *rest])


def search(
    question: Question,
    methods: Mapping[str, Sequence[str]],
    criterion: Criterion,
    run: Callable[[str, Config], Path],
) -> dict[str, Outcome]:
    """Run every method with every learning rate, and return the best outcome of each.

    `methods`: keys of each, by name. Fine-tuned copies are tested in the runs of FedAvg, at the rate that suits them
    best. `run` is given a name beside the configuration. FederationError if no run came to an end, with the reason of
    the first.
    """
    kept: dict[str, Outcome] = {}
    failures: list[FederationError] = []
    kind = question.tuned_key.rpartition(".")[2].removeprefix("learning_")
    for method, keys in methods.items():
        for rate in _rates(question, method, kept):
            name = method + (f"-{kind}-{rate:g}" if len(question.rates) > 1 else "")
            try:
                place = run(name, candidate_run(question, method, keys, rate))
            except FederationError as error:
                failures.append(error)
                continue
            found = [read_outcome(method, place, rate)]
            figure = named(criterion.figure(found[0].validation), criterion.measure)
            note(f"{name}: {counted(found[0].rounds, 'round')}, validation {figure}")
            if any(key.startswith("fine_tune_epochs=") for key in keys):
                found.append(read_outcome("tuned", place, rate, tuned=True))
            for one in found:
                if one.name not in kept or _improves(question, criterion, one, kept[one.name]):
                    kept[one.name] = one
    if not kept and failures:
        raise FederationError(f"advise: no run finished; the first said: {failures[0]}")
    return kept


def _improves(question: Question, criterion: Criterion, one: Outcome, last: Outcome) -> bool:
    """Return whether a setting is better than another; of ridges, by enough to matter."""
    figures = criterion.figure(one.validation), criterion.figure(last.validation)
    if question.by_newton and math.isfinite(figures[0]):
        return gain(*figures, criterion.measure) > _LEAST * unit_of(criterion.measure)
    return worth(figures[0], criterion.measure) > worth(figures[1], criterion.measure)


def _rates(question: Question, method: str, kept: Mapping[str, Outcome]) -> tuple[float, ...]:
    """Return the learning rates, or ridges, that a method is tried with, the usual one first."""
    usual, plain = question.rates[0], kept.get("fedavg")
    if question.by_newton and plain is not None:
        # What clients learn together has many records, and its ridge matters little: the plain model's will do.
        if method == "intercept":
            return (plain.rate,)
        # Coefficients of clients have a prior of their own. Where the ridge does not matter to one model for all, it
        # hardly does to one per group.
        if method == "slopes" or (method == "discovery" and plain.rate == usual):
            return (usual,)
    return question.rates
