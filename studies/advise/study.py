"""Advice: run the methods one after the other, and leave the answer in a folder."""

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute, results_folder
from florets.conf.schema import Config
from florets.reports.console import say
from florets.reports.folder import write_whole
from florets.reports.pooled import read_test_statistics
from florets.reports.summary import RunSummary
from florets.server_app.data_findings import Finding as CheckFinding
from florets.server_app.own_data import CHECK, read_preprocessing
from florets.server_app.progress import silent
from florets.studies.advise.advice import Advice, Evidence, advise
from florets.studies.advise.causes import Reason, differences, rule_of
from florets.studies.advise.compare import ConstantAnswer, Criterion
from florets.studies.advise.measures import Name, seconds_of, suitable
from florets.studies.advise.methods import Question, as_regression, candidates, first_run, note, search
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

_ONE_CLASS = (
    "advise: the records of each client are all of one class: a constant is right there, so that neither groups nor "
    "methods can be compared on a client's own records. If a client should have several classes, look at how the "
    "records were dealt out (owner, partition); if not, train one model for all (strategy=fedavg, "
    "train.local_steps=1) and test it on records of all classes, or group the clients by their "
    "class (strategy=discovery k=auto)."
)
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
        advice = study.advise()
    _write(folder, advice, study.question)
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
        self._play, self._folder, self._here = play, folder, here
        self._known: list[tuple[Config, Path]] = []
        self._left_out: tuple[str, ...] = ()

    def advise(self) -> Advice:
        """Make all runs and return the advice."""
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
            if finding_in(place).kind == "open":
                place = self._first()
        first = read_outcome("discovery", place)
        counts = {} if regression else first.train
        one_class = tuple(sorted(key for key, own in counts.items() if np.count_nonzero(own) < 2))
        if len(one_class) == len(counts) > 1:
            raise ConfigError([_ONE_CLASS])
        finding = finding_in(place, one_class)
        if finding.num_clients < 2:
            raise ConfigError(["advise: compares what several clients should do, and there is one; add clients."])
        measure: Name = suitable(regression) if read_test_statistics(place) else "loss"
        question = self.question = dataclasses.replace(self.question, measure=measure)
        seconds = seconds_of(measure, [own for key, own in counts.items() if key not in one_class])
        criterion = Criterion.of(measure, first.test, () if regression else one_class, seconds)
        outcomes = search(question, candidates(question, finding), criterion, self._run)
        constant = ConstantAnswer.of(measure, read_test_statistics(place), seconds)
        prepared = read_preprocessing(place)
        reasons = tuple(differences(read_sites(place, first.train, regression), one_class))
        classes = () if prepared is None else tuple(prepared.classes)
        evidence = Evidence(one_class, read_names(place), reasons, classes, self._left_out)
        advice = advise(finding, outcomes, criterion, constant, evidence)
        if rule := _rule(advice):
            reasons = (rule, *(one for one in reasons if one.kind != "labels"))
        return dataclasses.replace(advice, evidence=dataclasses.replace(evidence, reasons=reasons))

    def _first(self) -> Path:
        """Look for groups."""
        place = self._run("discovery", first_run(self.question))
        found = finding_in(place)
        note(f"discovery: {len(found.groups) if found.kind in ('groups', 'lone') else 'no'} groups")
        return place

    def _run(self, name: str, config: Config) -> Path:
        data, results = (str(absolute(path, self._here)) for path in (config.data_dir, config.results_dir))
        config = dataclasses.replace(config, data_dir=data, results_dir=results)
        # The first run looks for groups; of linear models it is the run of one model per group as well.
        same = dataclasses.replace(config, measure="auto", pictures=False)
        place = next((place for known, place in self._known if known == same), None)
        if place is None:
            with silent():
                summary = self._play(config, self._folder / name)
            place, self._left_out = Path(summary.folder), tuple(summary.left_out)
            self._known.append((same, place))
        return place


def _rule(advice: Advice) -> Reason | None:
    """Return whether groups follow different rules, by their models' losses on each other's records."""
    groups = advice.outcome("discovery")
    if advice.finding.kind != "groups" or groups is None:
        return None
    together = [one for name in ("fedavg", "intercept") if (one := advice.outcome(name)) is not None]
    gains = [advice.criterion.difference(groups.test, one.test).is_gain for one in together]
    return rule_of(advice.finding.groups, read_losses(Path(groups.folder)), groups.groups, all(gains))


def _write(folder: Path, advice: Advice, question: Question) -> None:
    words = Words(advice, question)
    criterion = advice.criterion
    values = {
        "answer": words.answer,
        "reasons": words.reasons,
        "chosen": advice.chosen,
        "command": None if advice.chosen is None else words.command,
        "measure": criterion.measure,
        "finding": dataclasses.asdict(advice.finding),
        "evidence": dataclasses.asdict(advice.evidence),
        "methods": [_method(advice, one) for one in advice.outcomes],
        "constant": advice.constant.figure(criterion),
        "sites": list(map(dataclasses.asdict, words.rows)),
    }
    # JSON has no number that is not finite.
    plain = json.loads(json.dumps(values), parse_constant=lambda _: None)
    write_whole(folder / "advice.json", json.dumps(plain, indent=2, allow_nan=False) + "\n")
    write_whole(folder / "advice.txt", f"{words.short}\nPage: {write_page(folder, words)}\n")


def _method(advice: Advice, outcome: Outcome) -> dict[str, Any]:
    criterion, gain = advice.criterion, advice.against(outcome.name)
    parts = {"test": outcome.test, "validation": outcome.validation}
    return {
        **{name: getattr(outcome, name) for name in ("name", "num_bytes", "seconds", "folder", "rate", "rounds")},
        "figure": criterion.figure(outcome.test),
        "validation_figure": criterion.figure(outcome.validation),
        **{name: dataclasses.replace(criterion, measure=name).figure(outcome.test) for name in criterion.seconds},
        "advised_gains": None if gain is None else dataclasses.asdict(gain),
        **{part: {k: {"records": one.n, **one.scores} for k, one in tests.items()} for part, tests in parts.items()},
    }
