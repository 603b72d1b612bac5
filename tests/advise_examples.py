"""Made-up results of methods on sites, for the tests of `florets advise`."""

import numpy as np

from florets.reports.pooled import PartStatistics, TestStatistics
from florets.studies.advise.advice import Advice, Evidence, advise
from florets.studies.advise.compare import ConstantAnswer, Criterion
from florets.studies.advise.measures import Name
from florets.studies.advise.methods import Question
from florets.studies.advise.outcomes import Finding, Outcome
from florets.studies.advise.words import Words
from florets.task.training.figures import sums_of

SITES = ("a", "b", "c", "d", "e")
OWN = ["data_dir=somewhere", "target=y", "min_clients=5"]
NONE = Finding("none", (SITES,), (), 0.41)
TWO = Finding("groups", (("a", "b", "c"), ("d", "e")), (), 0.0025)
LONE = Finding("lone", (("a", "b", "c", "d"), ("e",)), ("e",), 0.0025)


def part(accuracy: float, records: int = 40, site: int = 1) -> PartStatistics:
    """A test of two equally frequent classes with this accuracy; a site's resamples are the same for all methods."""
    labels = np.arange(records) % 2
    right = np.arange(records) >= records - round(accuracy * records)
    logits = np.where(right == labels.astype(bool), 2.0, -2.0)
    outputs = np.stack([np.zeros(records), logits], axis=1)
    sums = sums_of(outputs, labels, 2, np.random.default_rng(site))
    if sums is None:
        # Too few for a client to send any.
        return PartStatistics(records, {"accuracy": accuracy, "loss": 0.5}, None)
    names = ("accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss")
    return PartStatistics(records, dict(zip(names, map(float, sums.figures), strict=True)) | {"loss": 0.5}, sums)


def values_part(targets: np.ndarray, predicted: np.ndarray, site: int = 1) -> PartStatistics:
    """A test of values; a site's resamples are the same for all methods."""
    sums = sums_of(predicted[:, np.newaxis], targets, 0, np.random.default_rng(site))
    assert sums is not None
    scores = dict(zip(("r2", "mae", "rmse"), map(float, sums.figures), strict=True))
    return PartStatistics(len(targets), scores, sums)


def outcome(name: str, values: list[float], records: int = 40, test: list[float] | None = None) -> Outcome:
    """Results whose validation figures are `values`, as are those of the test unless they are given."""
    names = [*SITES, *(f"s{number:02d}" for number in range(len(values)))][: len(values)]
    parts = [
        {key: part(value, records, site) for site, (key, value) in enumerate(zip(names, found, strict=True))}
        for found in (values if test is None else test, values)
    ]
    train = {key: np.array([60.0, 60.0]) for key in names}
    return Outcome(name, *parts, dict.fromkeys(names, 0), 3_000_000, 12.0, "somewhere", 0.1, 17, train)


def constant_of(one: Outcome, measure: Name = "accuracy") -> ConstantAnswer:
    """The constant answer for the sites of a result: class 0, which is right in half of the cases."""
    told = {
        key: TestStatistics({"test": test, "validation": one.validation[key]}, one.train[key])
        for key, test in one.test.items()
    }
    return ConstantAnswer.of(measure, told)


def given(finding: Finding, evidence: Evidence | None = None, **values: list[float]) -> Advice:
    """The advice that accuracies of methods lead to, each on validation and test records alike."""
    outcomes = {name: outcome(name, figures) for name, figures in values.items()}
    first = next(iter(outcomes.values()))
    return advise(finding, outcomes, Criterion("accuracy"), constant_of(first), evidence)


def words(advice: Advice, *overrides: str) -> Words:
    return Words(advice, Question.of(list(overrides) or OWN))
