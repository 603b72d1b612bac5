"""What evaluations ask for besides the test, and what becomes of the clients' results."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from flwr.app import MetricRecord

from florets.strategies.base.report import Evaluation
from florets.task.wire import kinds
from florets.task.wire.replies import TestResult


@dataclass(frozen=True)
class EvaluationSettings:
    """What clients do at an evaluation besides the test of the model that they are sent.

    Attributes
    ----------
    fine_tune_epochs
        Local epochs that a copy of the model is trained for, and tested again; 0: none.
    validation
        Each test is made on the validation data as well.
    """

    fine_tune_epochs: float = 0.0
    validation: bool = False

    @property
    def settings(self) -> dict[str, float | bool]:
        """Message settings that tell the clients; none where there is nothing to tell."""
        told: dict[str, float | bool] = {}
        if self.fine_tune_epochs:
            told[kinds.FINE_TUNE_EPOCHS] = self.fine_tune_epochs
        if self.validation:
            told[kinds.VALIDATION] = True
        return told


def evaluation_of(test: TestResult) -> Evaluation:
    """Return a client's reply as it is reported."""
    validation = None if test.validation is None else evaluation_of(test.validation)
    tuned = None if test.tuned is None else evaluation_of(test.tuned)
    return Evaluation(test.num_examples, test.loss, test.accuracy, validation, tuned)


def mean_results(evaluations: Collection[Evaluation]) -> MetricRecord | None:
    """Return the unweighted means over clients, for Flower's result; None without any."""
    if not evaluations:
        return None
    metrics = MetricRecord({kinds.EVAL_LOSS: float(np.mean([result.loss for result in evaluations]))})
    accuracies = [result.accuracy for result in evaluations if result.accuracy is not None]
    if accuracies:
        metrics[kinds.EVAL_ACCURACY] = float(np.mean(accuracies))
    for prefix, beside in (
        (kinds.VALIDATED, [result.validation for result in evaluations if result.validation is not None]),
        (kinds.TUNED, [result.tuned for result in evaluations if result.tuned is not None]),
    ):
        metrics.update({f"{prefix}{name}": value for name, value in (mean_results(beside) or {}).items()})
    return metrics
