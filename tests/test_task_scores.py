"""Scores beside loss and accuracy, held to scikit-learn's; how they travel and are checked; what work is counted."""

import math

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from torch import nn

from florets.task.training.linear import LinearModels, flat, linear_losses, linear_test
from florets.task.training.loop import gradient, train
from florets.task.training.losses import counted, evaluate, loss_vector
from florets.task.training.scores import class_scores, value_scores
from florets.task.training.settings import Training
from florets.task.wire import MalformedMessage, kinds
from florets.task.wire.evaluation import read_evaluation


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 5, 150]), st.integers(1, 40))
@settings(max_examples=20, deadline=None)
# scikit-learn warns of classes that only one of both has.
@pytest.mark.filterwarnings("ignore:.*label:UserWarning")
@pytest.mark.filterwarnings("ignore:y_pred contains:UserWarning")
def test_scores_of_classes_are_those_of_scikit_learn(seed, num_classes, n):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(num_classes, size=n), rng.integers(num_classes, size=n)
    found = class_scores(labels, predicted)
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    f1 = f1_score(labels, predicted, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(f1)


@given(st.integers(0, 10_000), st.integers(2, 30))
@settings(max_examples=20, deadline=None)
def test_the_area_under_the_curve_counts_ties_half(seed, n):
    rng = np.random.default_rng(seed)
    labels, margins = rng.integers(2, size=n), rng.integers(-3, 3, size=n) / 2
    found = class_scores(labels, (margins > 0).astype(int), margins)
    if len(set(labels)) == 1:
        assert "auc" not in found
    else:
        assert found["auc"] == pytest.approx(roc_auc_score(labels, margins))


def test_scores_of_values_are_those_of_scikit_learn_and_left_out_where_not_defined():
    rng = np.random.default_rng(1)
    targets, values = rng.normal(size=30), rng.normal(size=30).astype(np.float32)
    found = value_scores(targets, values)
    assert found == {
        "r2": pytest.approx(r2_score(targets, values)),
        "mae": pytest.approx(mean_absolute_error(targets, values)),
        "rmse": pytest.approx(root_mean_squared_error(targets, values)),
    }
    alike = value_scores(np.ones(3), np.array([1.0, 2.0, 3.0]))
    assert alike == {"mae": pytest.approx(1.0), "rmse": pytest.approx(math.sqrt(5 / 3))}
    assert value_scores(targets[:1], np.array([np.nan])) == {}


def test_passes_are_counted_where_they_are_made():
    module, x, y = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), torch.randn(25, 4), torch.randint(3, (25,))
    rng = np.random.default_rng(0)
    with counted() as effort:
        train(module, x, y, "cross_entropy", Training(0.1, 2, 10), rng)
    assert (effort.gradients, effort.losses) == (50, 0)
    with counted() as effort:
        # Two steps are the first 20 samples of an epoch.
        train(module, x, y, "cross_entropy", Training(0.1, 1, 10, local_steps=2), rng)
        gradient(module, x, y, "cross_entropy", 7, rng)
    assert (effort.gradients, effort.losses) == (27, 0)
    state = module.state_dict()
    models = LinearModels.of([{k: v.numpy() for k, v in state.items()}] * 3, _names())
    with counted() as effort:
        loss_vector(module, [state] * 2, x, y, "cross_entropy")
        linear_losses(models, *flat(x, y), "cross_entropy")
        linear_test(models, *flat(x, y), "cross_entropy")
    assert (effort.gradients, effort.losses) == (0, 6 * 25)
    # Outside of a block nothing is kept.
    evaluate(module, x, y, "cross_entropy")
    assert effort.losses == 150


def _names():
    from florets.task.training.linear import LinearNames

    return LinearNames("1.weight", "1.bias")


def reply(accuracy=0.75, **scores):
    """A reply of 8 tests; a score of None is left out."""
    metrics = {kinds.EVAL_LOSS: 0.5, kinds.NUM_EXAMPLES: 8}
    if accuracy is not None:
        metrics[kinds.EVAL_ACCURACY] = accuracy
    content = RecordDict({kinds.METRICS: MetricRecord(metrics)})
    told = {"balanced_accuracy": 0.7, "auc": 1.0, **scores}
    content[kinds.SCORES] = ConfigRecord({name: value for name, value in told.items() if value is not None})
    return content


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auc": 1.01}, "auc is not a number from 0 to 1"),
        ({"macro_f1": float("nan")}, "macro_f1 is not a number"),
        ({"precision": 0.5}, "holds other things than"),
    ],
)
def test_scores_and_counts_that_cannot_be_are_refused(changes, message):
    with pytest.raises(MalformedMessage, match=message):
        read_evaluation(reply(**changes))
