"""Means of the clients' test results, for Flower's own result."""

from collections.abc import Collection

import numpy as np
from flwr.app import MetricRecord

from florets.strategies.base.report import Evaluation
from florets.task.wire import kinds


def mean_results(evaluations: Collection[Evaluation]) -> MetricRecord | None:
    """Return the unweighted means over clients, for Flower's result; None without any."""
    if not evaluations:
        return None
    metrics = MetricRecord({kinds.EVAL_LOSS: float(np.mean([result.loss for result in evaluations]))})
    accuracies = [result.accuracy for result in evaluations if result.accuracy is not None]
    if accuracies:
        metrics[kinds.EVAL_ACCURACY] = float(np.mean(accuracies))
    return metrics
