"""Advice: run the methods one after the other, and leave the answer in a folder."""

import dataclasses
import json
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute, results_folder
from florets.conf.schema import Config
from florets.reports.console import counted, say
from florets.reports.folder import write_whole
from florets.reports.pooled import TestStatistics, constant, pooled, read_test_statistics, with_sums
from florets.reports.summary import RunSummary
from florets.server_app.data_agreement import CHECK, read_preprocessing
from florets.server_app.data_findings import Finding as CheckFinding
from florets.server_app.progress import silent
from florets.strategies.base.federation import FederationError, TrainingDiverged
from florets.studies.advise.advice import Advice, Evidence, advise
from florets.studies.advise.causes import Reason, differences, rule_of
from florets.studies.advise.compare import Criterion
from florets.studies.advise.constant import ConstantAnswer
from florets.studies.advise.measures import OF_CLASSES, OF_VALUES, Name, seconds_of, suitable
from florets.studies.advise.methods import (
    Question,
    Trial,
    as_regression,
    candidates,
    first_run,
    num_runs,
    search,
    slower,
)
from florets.studies.advise.outcomes import (
    Outcome,
    finding_in,
    has_linear_models,
    read_losses,
    read_names,
    read_outcome,
    read_sites,
)
from florets.studies.advise.page import write_page
from florets.studies.advise.words import Words


class Meter:
    """Progress of all runs: a line for each, with the number of runs where it is known."""

    def __init__(self) -> None:
        self._runs = self._finished = 0

    def plan(self, methods: int, question: Question) -> None:
        """Show what is ahead from now on."""
        self._runs, self._finished = num_runs(methods, question), 0
        self.note(f"about {counted(self._runs, 'run')} of up to {counted(question.rounds, 'round')}")

    def end(self, name: str, result: str) -> None:
        """Note that a run has ended, and its result."""
        self._finished += 1
        of = f" of {self._runs}" if self._finished <= self._runs else ""
        self.note(f"run {self._finished}{of}, {name}: {result}")

    def note(self, text: str) -> None:
        """Show a line of text."""
        say(f"advise: {text}", sys.stderr)


_ONE_CLASS = (
    "advise: the records of each client are all of one class: a constant is right there, so that neither groups nor "
    "methods can be compared on a client's own records. If a client should have several classes, look at how the "
    "records were dealt out (owner, partition); if not, train one model for all (strategy=fedavg, "
    "train.local_steps=1) and test it on records of all classes, or group the clients by their "
    "class (strategy=discovery k=auto)."
)
_FAR_OFF = 3.0
"""RMSE in units of the constant answer's from which a run has diverged."""


Play = Callable[[Config, Path], RunSummary]
"""Runs an experiment whose results go into a folder."""


def answer(question: Question, play: Play, caller: Path | None = None) -> tuple[Advice, Path]:
    """Run everything that the answer takes, and return it with the folder of its page and its runs.

    Relative paths are meant from `caller`; None: the working folder.
    """
    here = caller or Path.cwd()
    folder = advice_folder(question, here)
    with _warnings_once():
        study = _Study(question, play, folder, here)
        advice, trials = study.advise()
    _write(folder, advice, study.question, trials)
    return advice, folder


@contextmanager
def _warnings_once() -> Iterator[None]:
    """Let each warning be logged once: every run meets the same sites."""
    log, seen = logging.getLogger("florets"), set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        known = text in seen and record.levelno >= logging.WARNING
        seen.add(text)
        return not known

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


def _say_problems(folder: Path) -> None:
    """Show what a run's check of the sites' data reports; notes only on all sites, as of a guessed target."""
    if (folder / CHECK).is_file():
        for one in json.loads((folder / CHECK).read_text(encoding="utf-8")):
            finding = CheckFinding(**one)
            if finding.level != "note" or not finding.site:
                say(f"check: {finding.level}: {finding}")


def advice_folder(question: Question, caller: Path) -> Path:
    """Return the folder of an answer, next to those of the experiment's runs."""
    base = dataclasses.replace(question.base, results_dir=str(absolute(question.base.results_dir, caller)))
    run = results_folder(base, question.overrides)
    # <experiment>/fedavg/<other keys>/seed-<seed>, with another name in the strategy's place.
    root = Path(base.results_dir) / base.experiment
    return root / "advise" / run.relative_to(root / "fedavg")


class _Study:
    """The runs of one answer, in their order."""

    def __init__(self, question: Question, play: Play, folder: Path, here: Path) -> None:
        self.question = question
        self._play, self._folder, self._here, self._meter = play, folder, here, Meter()
        self._known: list[tuple[Config, Path]] = []

    def advise(self) -> tuple[Advice, list[Trial]]:
        """Make all runs and return the advice, and the trials of learning rates."""
        place = self._first()
        _say_problems(place)
        parts = [part for one in read_test_statistics(place).values() for part in one.parts.values()]
        regression = any(name in part.scores for part in parts for name in ("r2", "rmse"))
        if regression and self.question.base.task.loss == "cross_entropy":
            # The sites' tables have values: groups show once a model has learned what all share.
            self.question = as_regression(self.question)
            place = self._first()
        if self.question.by_newton and not has_linear_models(place):
            self.question = dataclasses.replace(self.question, by_newton=False)
            if finding_in(place).kind in ("moving", "open"):
                place = self._first()
        question = self.question
        first = read_outcome("discovery", place)
        counts = {} if regression else first.train
        one_class = tuple(sorted(key for key, own in counts.items() if np.count_nonzero(own) < 2))
        if len(one_class) == len(counts) > 1:
            raise ConfigError([_ONE_CLASS])
        finding = finding_in(place, one_class)
        if finding.num_clients < 2:
            raise ConfigError(["advise: compares what several clients should do, and there is one; add clients."])
        measure = self._measure(place, first, regression)
        usable = [own for key, own in counts.items() if key not in one_class]
        question = self.question = dataclasses.replace(question, measure=measure)
        seconds = seconds_of(measure, usable)
        criterion = Criterion.of(measure, first.test, one_class if measure in OF_CLASSES else (), seconds)
        sites = read_sites(place, first.train, measure in OF_VALUES)
        reasons = differences(sites, one_class)
        methods = candidates(question, finding)
        self._meter.plan(len(methods), question)
        outcomes, trials = search(question, methods, criterion, self._run)
        constant = ConstantAnswer.of(measure, read_test_statistics(place), seconds)
        if not outcomes:
            failed = next((trial.failure for trial in trials if trial.failure), "")
            raise FederationError(f"advise: no run finished; the first said: {failed}")
        prepared = read_preprocessing(place)
        classes = () if prepared is None else tuple(prepared.classes)
        evidence = Evidence(one_class, read_names(place), tuple(reasons), classes)
        advice = advise(finding, outcomes, criterion, constant, evidence)
        rule = self._rule(advice)
        found = tuple([rule, *(one for one in reasons if one.kind != "labels")] if rule else reasons)
        return dataclasses.replace(advice, evidence=dataclasses.replace(evidence, reasons=found)), trials

    def _first(self) -> Path:
        """Look for groups, with smaller learning rates where training diverges."""
        for other in [*slower(self.question), None]:
            try:
                place = self._run("discovery", first_run(self.question), _groups_of)
                if other is None or not _is_far_off(read_test_statistics(place)):
                    break
            except TrainingDiverged:
                if other is None:
                    raise
            self.question = other
            rate = other.base.train.learning_rate * other.slower
            self._meter.note(f"training diverged; trying train.learning_rate={rate:.3g}")
        return place

    def _run(self, name: str, config: Config, said: Callable[[Path], str]) -> Path:
        data, results = (str(absolute(path, self._here)) for path in (config.data_dir, config.results_dir))
        config = dataclasses.replace(config, data_dir=data, results_dir=results)
        # The first run looks for groups; of linear models it is the run of one model per group as well.
        same = dataclasses.replace(config, measure="auto", pictures=False)
        place = next((place for known, place in self._known if known == same), None)
        if place is None:
            with silent():
                place = Path(self._play(config, self._folder / name).folder)
            self._known.append((same, place))
        self._meter.end(name, said(place))
        return place

    @staticmethod
    def _measure(place: Path, first: Outcome, is_regression: bool) -> Name:
        """Return the measure that suits the data."""
        if not read_test_statistics(place):
            tests = first.test.values()
            return "accuracy" if tests and all("accuracy" in test.scores for test in tests) else "loss"
        return suitable(is_regression)

    def _rule(self, advice: Advice) -> Reason | None:
        """Return whether groups follow different rules, by their models' losses on each other's records."""
        groups = advice.outcome("discovery")
        together = [one for name in ("fedavg", "intercept") if (one := advice.outcome(name)) is not None]
        if advice.finding.kind != "groups" or groups is None:
            return None
        test = advice.judged(groups).test
        gains = [advice.criterion.difference(test, advice.judged(one).test).is_gain for one in together]
        return rule_of(advice.finding.groups, read_losses(Path(groups.folder)), groups.groups, all(gains))


def _is_far_off(statistics: Mapping[str, TestStatistics]) -> bool:
    """Return whether a regression's errors are so much larger than the constant answer's that training diverged."""
    if not statistics:
        return False
    return pooled(with_sums(statistics).values(), "rmse") > _FAR_OFF * constant(statistics, "rmse").pooled


def _groups_of(place: Path) -> str:
    found = finding_in(place)
    return f"{len(found.groups)} groups" if found.kind in ("groups", "lone") else "no groups"


def _write(folder: Path, advice: Advice, question: Question, trials: Sequence[Trial]) -> None:
    words = Words(advice, question)
    criterion = advice.criterion
    values = {
        "answer": words.answer,
        "reasons": words.reasons,
        "changes": words.changes,
        "chosen": advice.chosen,
        "command": None if advice.chosen is None else words.command,
        "measure": criterion.measure,
        "seconds": criterion.seconds,
        "finding": dataclasses.asdict(advice.finding),
        "evidence": dataclasses.asdict(advice.evidence),
        "methods": [_method(advice, one) for one in advice.outcomes],
        "constant": {
            "figure": advice.constant.figure(criterion),
            "validation_figure": advice.constant.figure(criterion, "validation"),
        },
        "sites": list(map(dataclasses.asdict, words.rows)),
        "low": advice.low,
        "own_is_low": advice.own_is_low,
        "trials": list(map(dataclasses.asdict, trials)),
    }
    write_whole(folder / "advice.json", json.dumps(_finite(values), indent=2, allow_nan=False) + "\n")
    write_whole(folder / "advice.txt", f"{words.short}\nPage: {write_page(folder, words)}\n")


def _method(advice: Advice, outcome: Outcome) -> dict[str, Any]:
    criterion, gain, judged = advice.criterion, advice.against(outcome.name), advice.judged(outcome)
    plain = ("name", "groups", "num_bytes", "seconds", "folder", "rate", "rounds")
    parts = {"test": outcome.test, "validation": outcome.validation}
    return {
        **{name: getattr(outcome, name) for name in plain},
        "figure": criterion.figure(judged.test),
        "validation_figure": criterion.figure(judged.validation),
        "unfit": advice.unfit.get(outcome.name),
        **{name: dataclasses.replace(criterion, measure=name).figure(judged.test) for name in criterion.seconds},
        "advised_gains": None if gain is None else dataclasses.asdict(gain),
        **{part: {k: {"records": one.n, **one.scores} for k, one in tests.items()} for part, tests in parts.items()},
    }


def _finite(value: Any) -> Any:
    """Return plain values with None for what is not a finite number: JSON has none."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
