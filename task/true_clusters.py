"""Tests of several models on the test data of each true cluster, which only a simulation has at hand."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from florets.task.task import Task
from florets.task.training.losses import evaluate


def best_of_each_cluster(
    task: Task, models: Iterable[Mapping[str, NDArray[Any]]], server_round: int = 0
) -> tuple[float, float | None]:
    """Return the lowest loss and the lowest error of all models on each true cluster, mean over the clusters.

    Parameters
    ----------
    task
        Its clients' test data are joined cluster by cluster, see `Task.cluster_tests_at`.
    models
        State dicts as arrays.
    server_round
        Whose true clusters count.

    Returns
    -------
    tuple
        The loss, infinite if all models diverged on a cluster, and the share of samples that are not put into their
        class, None where there are no classes.

    Source: mixed regression, Sec. V-D, the test loss and the misclassification rate.
    """
    module = task.build_model()
    losses: list[list[float]] = []
    errors: list[list[float]] = []
    for model in models:
        module.load_state_dict({name: torch.from_numpy(values) for name, values in model.items()})
        results = [evaluate(module, x, y, task.spec.loss) for x, y in task.cluster_tests_at(server_round).values()]
        losses.append([loss for loss, _ in results])
        errors.append([1 - accuracy for _, accuracy in results if accuracy is not None])
    # A model that diverged is the best of no cluster.
    lowest = np.nan_to_num(np.array(losses), nan=np.inf).min(axis=0)
    error = float(np.array(errors).min(axis=0).mean()) if errors[0] else None
    return float(lowest.mean()), error
