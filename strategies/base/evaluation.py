"""Test evaluations: what clients do besides a test, and how a round reports their replies."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from flwr.app import MetricRecord, RecordDict

from florets.task.tested import Evaluation
from florets.task.wire import kinds
from florets.task.wire.evaluation import read_evaluation


@dataclass(frozen=True)
class EvaluationSettings:
    """What clients do at an evaluation in addition to the test of the model that they are sent.

    They train a copy for `fine_tune_epochs` and test it again, make each test on the validation data as well, and
    send sums of their tests: `sums_of` classes, 0 for values; None: none.
    """

    fine_tune_epochs: float = 0.0
    validation: bool = False
    sums_of: int | None = None

    @property
    def settings(self) -> dict[str, float | bool]:
        """Message settings that say so to the clients; none for a plain test."""
        asked = {
            kinds.FINE_TUNE_EPOCHS: self.fine_tune_epochs,
            kinds.VALIDATION: self.validation,
            kinds.TEST_SUMS: self.sums_of is not None,
        }
        return {name: value for name, value in asked.items() if value}

    def read(self, content: RecordDict) -> Evaluation:
        """Return the reply to a test, checked for what was asked."""
        return read_evaluation(content, bool(self.fine_tune_epochs), self.validation, self.sums_of)


def mean_results(evaluations: Collection[Evaluation]) -> MetricRecord | None:
    """Return the unweighted means over clients, for Flower's result; None without any."""
    if not evaluations:
        return None
    metrics = MetricRecord({kinds.EVAL_LOSS: float(np.mean([result.loss for result in evaluations]))})
    accuracies = [result.accuracy for result in evaluations if result.accuracy is not None]
    if accuracies:
        metrics[kinds.EVAL_ACCURACY] = float(np.mean(accuracies))
    return metrics
